// glint chat: a conversation.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/session_option.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

// States that a conversation can be taken back to; each holds a copy of the recurrent state (150 MB for the released model).
constexpr size_t kCheckpoints = 2;

constexpr std::string_view kHelp =
    "  /help                  this text\n"
    "  /reset                 forget the conversation\n"
    "  /stats                 tokens, speed and memory\n"
    "  /save FILE             keep the conversation and all that was read of it in a file (/save! FILE "
    "replaces one)\n"
    "  /load FILE             go on with the conversation of a file; that of --session is saved first\n"
    "  /think low|high|max    how much the model should reason, from the next answer on\n"
    "  /exit                  leave; Ctrl-D does too\n"
    "Ctrl-C stops an answer. A paste of several lines is one message.\n"
    "A line that ends with \\ goes on in the next one.\n"
    "A block that opens with ``` goes on until a line that begins with ```.\n"
    "A message that begins with a slash needs a space before it.\n";

struct ChatChoice {
  ModelChoice model;
  SamplingChoice sampling;
  std::optional<std::string> system, think, session;
  std::optional<int64_t> max_tokens, context;
  bool reasoning = false, check = false;
};

bool IsEffort(std::string_view word) { return word == "low" || word == "high" || word == "max"; }

class Chat {
 public:
  Chat(const ChatChoice& choice, Model model, SamplerOptions sampling, Session session)
      : choice_(choice),
        model_(std::move(model)),
        sampling_(std::move(sampling)),
        session_(std::move(session)),
        editor_(HistoryPath()),
        effort_(choice.think.value_or("")),
        file_(choice.session) {
    Forget();
  }

  Result<int> Talk();
  // Replaces the conversation by that of a file; after an error it is as it was.
  Status Load(const std::string& path);
  Status Save(const std::string& path);
  // In the file of --session, if the conversation is still that one's.
  Status SaveInOwnFile() { return file_ ? Save(*file_) : Status(); }
  // --system opens a conversation that was loaded empty; one that has begun has its own.
  Status Introduce();

 private:
  enum class Next : uint8_t { kMessage, kEnd, kNothing };
  Next ReadMessage(std::string* message);
  Status Command(const std::string& line);
  Status Answer(const std::string& message);
  Status SaveOnCommand(const std::string& path, bool replace);
  Status LoadOnCommand(const std::string& path);
  bool Ours(const std::string& path) const;
  Status BringSessionTo(const std::vector<ChatPart>& parts, std::vector<int32_t>* append);
  void Note(const std::string& text) const { PrintError(TerminalText(text) + "\n"); }
  void Forget();
  void Stats() const;
  int64_t Turns() const;

  const ChatChoice& choice_;
  Model model_;
  SamplerOptions sampling_;
  Session session_;
  LineEditor editor_;
  std::string effort_;
  std::optional<std::string> file_;  // --session's, until another conversation is loaded
  std::vector<std::string> ours_;    // files that were loaded from or saved to: they may be replaced unasked
  std::vector<Message> messages_;
  std::deque<CheckpointId> checkpoints_;
  uint64_t answers_ = 0;  // over the whole program: /reset does not bring the same draws back
  std::optional<Generation> last_;
  bool leave_ = false;
};

void Chat::Forget() {
  messages_.clear();
  if (choice_.system) messages_.push_back(MakeMessage(Role::kSystem, *choice_.system));
  session_.Reset();
  checkpoints_.clear();
  last_.reset();
}

// Lines joined by a backslash or a ``` block. Ctrl-C drops what has been typed so far.
Chat::Next Chat::ReadMessage(std::string* message) {
  message->clear();
  bool more = false, fenced = false;
  while (true) {
    std::string line;
    const LineEditor::Event event = editor_.Read(more ? "... " : "> ", &line);
    if (event == LineEditor::Event::kInterrupted) {
      if (Terminated() || !editor_.interactive()) return Next::kEnd;
      ClearInterrupt();
      PrintError(more ? "\n" : "\n(/exit or Ctrl-D leaves)\n");
      return Next::kNothing;
    }
    if (event == LineEditor::Event::kEnd) {
      if (editor_.interactive()) PrintError("\n");
      return more ? Next::kMessage : Next::kEnd;
    }
    if (more) *message += '\n';
    if (line.starts_with("```")) {
      // A pasted block brings its own end along.
      fenced = !fenced && line.find("\n```") == std::string::npos;
    }
    more = fenced || line.ends_with('\\');
    if (!fenced && more) line.pop_back();
    *message += line;
    if (!more) return Next::kMessage;
  }
}

Status Chat::Command(const std::string& line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  std::string argument = line.substr(space);
  argument.erase(0, std::min(argument.find_first_not_of(' '), argument.size()));
  while (argument.ends_with(' ')) argument.pop_back();
  if (name == "/exit" || name == "/quit" || name == "/bye") {
    leave_ = true;
  } else if (name == "/help") {
    return Print(kHelp);
  } else if (name == "/reset") {
    Forget();
    Note("(a new conversation)");
  } else if (name == "/stats") {
    Stats();
  } else if (name == "/save" || name == "/save!" || name == "/load") {
    const std::string path = argument.empty() ? file_.value_or("") : argument;
    if (path.empty()) {
      Note(name + " takes the name of a file");
      return {};
    }
    return name == "/load" ? LoadOnCommand(path) : SaveOnCommand(path, name == "/save!");
  } else if (name == "/think") {
    if (!IsEffort(argument)) {
      Note("/think takes low, high or max; now it is " + (effort_.empty() ? "max" : effort_));
    } else {
      effort_ = argument;
      Note(fmt::format("(reasoning effort {} from the next answer on)", effort_));
    }
  } else {
    const std::string meant =
        Nearest(name, {"/help", "/reset", "/stats", "/save", "/save!", "/load", "/think", "/exit"});
    Note(fmt::format("unknown command {}{}", name,
                     meant.empty() ? "; /help lists them" : "; did you mean " + meant + "?"));
  }
  return {};
}

bool Chat::Ours(const std::string& path) const {
  return std::any_of(ours_.begin(), ours_.end(), [&](const std::string& ours) {
    std::error_code error;
    return ours == path || std::filesystem::equivalent(ours, path, error);
  });
}

// Another conversation's file is not lost to a slip of the name.
Status Chat::SaveOnCommand(const std::string& path, bool replace) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return {Code::kBadInput, fmt::format("{} is a directory; /save takes the name of a file", path)};
  }
  if (!replace && !Ours(path) && std::filesystem::exists(path, error)) {
    return {Code::kBadInput, fmt::format("{} exists; /save! {} replaces it", path, path)};
  }
  return Save(path);
}

Status Chat::LoadOnCommand(const std::string& path) {
  std::error_code error;
  const bool own = file_ && (*file_ == path || std::filesystem::equivalent(*file_, path, error));
  if (own || !file_) return Load(path);  // its own: back to what was saved last
  const std::string left = *file_;
  if (Status status = Save(left); !status.ok()) return status;
  if (Status status = Load(path); !status.ok()) return status;
  file_.reset();
  Note(fmt::format("(what was said before is in {}; this conversation is kept only by /save)", left));
  return {};
}

Status Chat::Save(const std::string& path) {
  Status status =
      SaveSessionFile(session_, path, {.conversation = true, .messages = messages_, .effort = effort_});
  if (status.ok() && !Ours(path)) ours_.push_back(path);
  if (status.ok() && editor_.interactive())
    Note(fmt::format("(saved: {} tokens)", Grouped(static_cast<uint64_t>(session_.position()))));
  return status;
}

Status Chat::Load(const std::string& path) {
  KeptWords words;
  auto session = LoadSessionFile(
      model_, path, {.context = choice_.context.value_or(0), .check = choice_.check}, true, &words);
  if (!session.ok()) return session.status();
  session_ = std::move(*session);
  if (!Ours(path)) ours_.push_back(path);
  checkpoints_.clear();
  last_.reset();
  messages_ = std::move(words.messages);
  effort_ = choice_.think.value_or(words.effort);
  if (editor_.interactive())
    Note(fmt::format("(loaded: {} turns, {} tokens)", Turns(),
                     Grouped(static_cast<uint64_t>(session_.position()))));
  return {};
}

Status Chat::Introduce() {
  if (!choice_.system) return {};
  if (!messages_.empty())
    return {Code::kBadInput,
            "--system: the conversation of --session has begun; name another file to begin a new one"};
  messages_.push_back(MakeMessage(Role::kSystem, *choice_.system));
  return {};
}

int64_t Chat::Turns() const {
  return std::count_if(messages_.begin(), messages_.end(),
                       [](const Message& m) { return m.role == Role::kUser; });
}

void Chat::Stats() const {
  const int64_t turns = Turns();
  std::string text =
      fmt::format("{} turn{}; {} of {} tokens of context used; caches, state and checkpoints {}\n", turns,
                  turns == 1 ? "" : "s", Grouped(static_cast<uint64_t>(session_.position())),
                  Grouped(static_cast<uint64_t>(session_.capacity())), Bytes(session_.memory_bytes()));
  if (last_) {
    text += fmt::format("last answer: read {} new tokens at {} tokens/s, generated {} at {} tokens/s\n",
                        Grouped(static_cast<uint64_t>(last_->prefilled)), Rate(last_->PrefillRate()),
                        Grouped(last_->ids.size()), Rate(last_->DecodeRate()));
  }
  text += fmt::format("{} of weights a token; {} thread{}; seed {}\n", Bytes(model_.weight_bytes_per_token()),
                      model_.threads(), model_.threads() == 1 ? "" : "s", sampling_.seed);
  PrintError(text);
}

// Takes the session back as far as it must go, and says what is to be appended.
Status Chat::BringSessionTo(const std::vector<ChatPart>& parts, std::vector<int32_t>* append) {
  auto way = PlanContinuation(model_.tokenizer(), parts, session_.tokens(), session_.Rewindable());
  if (!way.ok()) return way.status();
  const auto room = session_.capacity() - way->keep;
  if (static_cast<int64_t>(way->append.size()) >= room) {
    return {Code::kNoRoom,
            fmt::format("the conversation would have {} tokens, the context has room for {}; /reset starts a "
                        "new one, --ctx makes more room",
                        way->keep + static_cast<int64_t>(way->append.size()), session_.capacity())};
  }
  if (Status status = TakeBack(session_, way->keep); !status.ok()) return status;
  *append = std::move(way->append);
  return {};
}

Status Chat::Answer(const std::string& message) {
  std::vector<Message> messages = messages_;
  messages.push_back(MakeMessage(Role::kUser, message));
  const auto parts = model_.tokenizer().RenderChat(messages, WithEffort(effort_));
  if (!parts.ok()) return parts.status();
  std::vector<int32_t> prompt;
  Status status = BringSessionTo(*parts, &prompt);
  if (!status.ok()) return status;

  SamplerOptions sampling = sampling_;
  sampling.seed += answers_++;
  auto sampler = Sampler::Create(sampling, model_.usable_vocab());
  if (!sampler.ok()) return sampler.status();
  sampler->Observe(session_.tokens());
  sampler->Observe(prompt);

  AnswerStyle style = StyleOfStdout();
  style.show_reasoning = style.show_reasoning || choice_.reasoning;
  style.end_line = true;
  cli::Answer answer(model_.tokenizer(), prompt, style);
  GenerateOptions options;
  options.max_tokens = choice_.max_tokens.value_or(-1);
  options.source = choice_.model.Source();
  options.stop_ids = model_.tokenizer().stop_ids();
  options.after_prompt = [this]() -> Status {
    auto checkpoint = session_.Checkpoint();
    if (!checkpoint.ok()) return checkpoint.status();
    checkpoints_.push_back(*checkpoint);
    for (; checkpoints_.size() > kCheckpoints; checkpoints_.pop_front())
      session_.Forget(checkpoints_.front());
    return {};
  };
  auto made = Generate(session_, *sampler, model_.vocab_size(), prompt, options,
                       [&](int32_t id) { return answer.Push(id); });
  Status finished = answer.Finish();
  if (!made.ok()) return made.status();
  if (!finished.ok()) return finished;

  switch (made->reason) {
    case StopReason::kStopToken:
      break;
    case StopReason::kMaxTokens:
      Note("(--max-tokens reached)");
      break;
    case StopReason::kContextFull:
      Note("(the context is full; /reset starts a new conversation, --ctx makes more room)");
      break;
    case StopReason::kInterrupted:
      Note("(stopped)");
      break;
  }
  ClearInterrupt();
  // A question that was stopped before its answer began was not asked.
  if (made->reason != StopReason::kInterrupted || !made->ids.empty()) {
    messages.push_back(MakeMessage(Role::kAssistant, answer.content(), answer.reasoning()));
    messages_ = std::move(messages);
  }
  last_ = std::move(*made);
  return {};
}

Result<int> Chat::Talk() {
  if (editor_.interactive()) {
    Note(fmt::format("{}, context {} tokens. /help lists the commands, Ctrl-D leaves.", model_.name(),
                     Grouped(static_cast<uint64_t>(session_.capacity()))));
  }
  while (!leave_) {
    std::string message;
    const Next next = ReadMessage(&message);
    if (next == Next::kEnd) break;
    if (next == Next::kNothing || message.find_first_not_of(" \t\n") == std::string::npos) continue;
    editor_.Remember(message);
    const bool command = message[0] == '/' && message.find('\n') == std::string::npos;
    const Status status = command ? Command(message) : Answer(message);
    if (status.ok()) continue;
    // In a script a failed turn is the end; a person may go on, unless nothing can be shown or computed any more.
    if (!editor_.interactive() || status.code() == Code::kIo || status.code() == Code::kDevice) return status;
    Note("glint chat: " + status.message());
  }
  if (Interrupted()) return InterruptExitCode();
  return 0;
}

Result<int> Run(const ChatChoice& choice) {
  const auto model = choice.model.Open();
  if (!model.ok()) return model.status();
  if (!model->has_tokenizer())
    return Status(Code::kBadInput, model->name() + " has no tokenizer, so no chat");
  const auto rendered = model->tokenizer().RenderChat(std::vector<Message>{MakeMessage(Role::kUser, "x")});
  if (!rendered.ok()) return rendered.status();  // said now, not after the first message
  auto sampling = choice.sampling.Resolve(*model);
  if (!sampling.ok()) return sampling.status();
  const auto checked = Sampler::Create(*sampling, model->usable_vocab());
  if (!checked.ok()) return checked.status();
  const int64_t made_for = model->context_length() > 0 ? model->context_length() : 4096;
  auto session = Session::Create(
      *model, {.context = choice.context.value_or(std::min<int64_t>(made_for, 4096)), .check = choice.check});
  if (!session.ok()) return session.status();
  CatchInterruptsForever();
  Chat chat(choice, *model, std::move(*sampling), std::move(*session));
  if (!choice.session) return chat.Talk();
  std::error_code error;
  if (std::filesystem::exists(*choice.session, error)) {
    if (Status status = chat.Load(*choice.session); !status.ok()) return status;
    if (const auto writable = AtomicFile::Create(*choice.session); !writable.ok()) return writable.status();
    if (Status status = chat.Introduce(); !status.ok()) return status;
  } else if (Status status = chat.Save(*choice.session);
             !status.ok()) {  // better now than when all has been said
    return status;
  }
  auto code = chat.Talk();
  if (!code.ok() && code.status().code() == Code::kDevice) return code;
  const Status saved = chat.SaveInOwnFile();
  return code.ok() && !saved.ok() ? Result<int>(saved) : code;
}

}  // namespace

Work DeclareChat(Options& options) {
  auto o = std::make_shared<ChatChoice>();
  options.Value("--system", "TEXT", &o->system, "A system message at the start");
  options.Value("--think", "EFFORT", &o->think, "Reasoning effort: low, high or max");
  options.Value("-n,--max-tokens", "N", &o->max_tokens, 1, INT32_MAX, "Tokens of an answer at most");
  options.Value(
      "--ctx", "N", &o->context, 1, INT32_MAX,
      "Tokens the conversation has room for; without it 4096, or less if the model was made for less");
  options.files().Writes(&o->session, nullptr, CommandFiles::Form::kSession);
  options.Value("--session", "FILE", &o->session,
                "Go on with the conversation of this file, and save it there at the end; it is made if it is "
                "not there");
  options.Flag("--reasoning", &o->reasoning, "Show reasoning also when stdout is not a terminal");
  o->sampling.Declare(options);
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  options.Flag("--check", &o->check, "Verify every step of every pass as `glint verify` does; slow");
  options.Notes("Commands in the conversation:\n" + std::string(kHelp) +
                "\nReasoning is shown dimmed. If stdin is not a terminal, its lines are the messages and "
                "stdout gets the answers alone.");
  options.Examples({"glint chat", "glint chat -m model.gguf --think low --ctx 4096",
                    "glint chat --session talk.glint",
                    "printf 'Tell me a story.\\n/reset\\nTell me another.\\n' | glint chat --seed 1"});
  options.Check([o]() -> Status {
    if (o->think && !IsEffort(*o->think)) {
      return {Code::kBadInput, fmt::format("--think: '{}' is not low, high or max", *o->think)};
    }
    return {};
  });
  return [o] { return Run(*o); };
}

}  // namespace glint::cli
