#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace glint::cli {
namespace {

constexpr int kHistoryEntries = 1000;
// Stands for a newline inside the one line that is edited. Somebody who types it gets a newline too.
constexpr wchar_t kNewlineSign = L'\u23ce';
constexpr std::string_view kNewlineSignUtf8 = "\u23ce";
constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  return out += text;
}

}  // namespace

std::string HistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && state[0] == '/')
    return std::string(state) + "/glint/history";  // relative ones are void by the XDG rules
  const char* home = std::getenv("HOME");
  if (!home || home[0] != '/') return {};
  return std::string(home) + "/.local/state/glint/history";
}

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string history_path, prompt, buffer;  // buffer: bytes read from stdin and not used yet
  std::string last_entry;
  int columns = 0;
  bool pasting = false, interrupted = false;

  // Reads more of stdin into the buffer. False at its end, or after Ctrl-C (then `interrupted`).
  bool Fill() {
    while (true) {
      if (!WaitReadable(STDIN_FILENO)) {
        interrupted = true;
        return false;
      }
      char bytes[4096];
      const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
      if (got > 0) {
        buffer.append(bytes, static_cast<size_t>(got));
        return true;
      }
      if (got == 0 || errno != EINTR) return false;
    }
  }

  // Whether the buffer begins with `sequence`; waits a moment for the rest of one that has begun (a lone Escape key has none).
  bool StartsWith(std::string_view sequence) {
    while (buffer.size() < sequence.size() && sequence.starts_with(buffer)) {
      pollfd wait{STDIN_FILENO, POLLIN, 0};
      if (poll(&wait, 1, 20) <= 0 || !Fill()) return false;
    }
    return buffer.starts_with(sequence);
  }

  // libedit's source of characters: UTF-8 whatever the locale, and pasted newlines that do not end the line.
  int NextCharacter(wchar_t* out) {
    if (Columns(STDOUT_FILENO) != columns) {
      columns = Columns(STDOUT_FILENO);
      el_resize(editor);
    }
    while (true) {
      if (buffer.empty() && !Fill()) return interrupted ? -1 : 0;
      if (!pasting && StartsWith(kPasteBegin)) {
        buffer.erase(0, kPasteBegin.size());
        pasting = true;
      } else if (pasting && StartsWith(kPasteEnd)) {
        buffer.erase(0, kPasteEnd.size());
        pasting = false;
      } else {
        break;
      }
    }
    char32_t code = 0;
    size_t length;
    while ((length = DecodeUtf8(buffer, code)) == 0 && buffer.size() < 4 &&
           static_cast<unsigned char>(buffer[0]) >= 0xc2) {
      pollfd wait{STDIN_FILENO, POLLIN, 0};  // the rest of a character comes at once or never
      if (poll(&wait, 1, 20) <= 0 || !Fill()) break;
    }
    if (length == 0) length = 1, code = 0xfffd;
    // Ctrl-D typed ahead, while the terminal was in its usual mode, comes out of it as NUL.
    if (code == 0) {
      const LineInfo* line = el_line(editor);
      if (line->lastchar == line->buffer) code = '\4';
    }
    const char following = buffer.size() > length ? buffer[length] : '\0';
    buffer.erase(0, length);
    if (pasting && code == '\r' && following == '\n') buffer.erase(0, 1);
    if (pasting && (code == '\r' || code == '\n'))
      code = kNewlineSign;
    else if (pasting && (code < 0x20 || code == 0x7f))
      code = ' ';  // a tab; others would be commands to the editor
    *out = static_cast<wchar_t>(code);
    return 1;
  }

  void LoadHistory() {
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryEntries);
    if (!history_path.empty()) ::history(history, &event, H_LOAD, history_path.c_str());
  }

  // Written beside and renamed, so that a full disk or a kill costs no history.
  void SaveHistory() {
    if (history_path.empty()) return;
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(history_path).parent_path();
    if (!std::filesystem::exists(folder, ignored)) {
      std::filesystem::create_directories(folder.parent_path(), ignored);
      if (mkdir(folder.c_str(), 0700) != 0) return;
    }
    std::string temporary = history_path + ".XXXXXX";
    const int fd = mkstemp(temporary.data());  // mode 0600
    if (fd == -1) return;
    FILE* file = fdopen(fd, "w");
    if (!file) {
      close(fd);
      unlink(temporary.c_str());
      return;
    }
    HistEvent event;
    bool good = ::history(history, &event, H_SAVE_FP, file) != -1;
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary.c_str(), history_path.c_str()) != 0) unlink(temporary.c_str());
  }
};

LineEditor::LineEditor(const std::string& history_path) : impl_(std::make_unique<Impl>()) {
  if (!IsTerminal(STDIN_FILENO) || !IsTerminal(STDOUT_FILENO)) return;
  // libedit writes wide characters through the locale; ours are UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");

  impl_->editor = el_init("glint", stdin, stdout, stderr);
  if (!impl_->editor) return;
  impl_->history_path = history_path;
  impl_->columns = Columns(STDOUT_FILENO);
  impl_->LoadHistory();
  el_set(impl_->editor, EL_CLIENTDATA, impl_.get());
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_SIGNAL, 0);
  el_set(impl_->editor, EL_HIST, ::history, impl_->history);
  el_set(impl_->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(impl_->editor, nullptr);  // the user's own ~/.editrc
  using PromptFunction = char* (*)(EditLine*);
  const PromptFunction prompt = [](EditLine* editor) {
    Impl* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt.data();
  };
  el_set(impl_->editor, EL_PROMPT, prompt);
  const el_rfunc_t next = [](EditLine* editor, wchar_t* out) {
    Impl* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->NextCharacter(out);
  };
  el_set(impl_->editor, EL_GETCFN, next);
}

LineEditor::~LineEditor() {
  if (impl_->editor) el_end(impl_->editor);
  if (impl_->history) history_end(impl_->history);
}

bool LineEditor::interactive() const { return impl_->editor != nullptr; }

LineEditor::Event LineEditor::Read(const std::string& prompt, std::string* line) {
  line->clear();
  impl_->interrupted = false;
  if (!impl_->editor) {
    size_t end;
    while ((end = impl_->buffer.find('\n')) == std::string::npos) {
      if (impl_->Fill()) continue;
      if (impl_->interrupted) return Event::kInterrupted;
      if (impl_->buffer.empty()) return Event::kEnd;
      impl_->buffer += '\n';  // a last line without its end
    }
    *line = impl_->buffer.substr(0, end);
    impl_->buffer.erase(0, end + 1);
    if (line->ends_with('\r')) line->pop_back();
    return Event::kLine;
  }

  impl_->prompt = prompt;
  const bool escapes = TakesEscapes(STDOUT_FILENO);
  const Status bracketed = escapes ? Print("\x1b[?2004h") : Status();  // the terminal marks pastes
  // Before the prompt is drawn: libedit would take the terminal over after it, and keys typed in between go through the kernel's editing.
  el_set(impl_->editor, EL_PREP_TERM, 1);
  int length = 0;
  const char* text = bracketed.ok() ? el_gets(impl_->editor, &length) : nullptr;
  const bool quiet = !escapes || Print("\x1b[?2004l").ok();
  impl_->pasting = false;
  if (impl_->interrupted) return Event::kInterrupted;
  if (!text || length <= 0 || !quiet) return Event::kEnd;
  *line = Replaced(text, kNewlineSignUtf8, "\n");
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  return Event::kLine;
}

void LineEditor::Remember(const std::string& entry) {
  if (!impl_->history || entry.empty() || entry == impl_->last_entry) return;
  impl_->last_entry = entry;
  HistEvent event;
  ::history(impl_->history, &event, H_ENTER, Replaced(entry, "\n", kNewlineSignUtf8).c_str());
  impl_->SaveHistory();
}

}  // namespace glint::cli
