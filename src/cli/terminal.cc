#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/printable.h"

namespace glint::cli {

bool IsTerminal(int fd) { return isatty(fd) == 1; }

int Columns(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool TakesEscapes(int fd) {
  const char* term = std::getenv("TERM");
  return IsTerminal(fd) && term && *term && std::string_view(term) != "dumb";
}

bool WantsColour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return TakesEscapes(fd) && !(no_colour && *no_colour);
}

std::string TerminalText(std::string_view text) {
  constexpr std::string_view kKept = "\n\t\\";
  std::string out;
  while (!text.empty()) {
    const size_t kept = text.find_first_of(kKept);
    out += Printable(text.substr(0, kept));
    if (kept == std::string_view::npos) break;
    out += text[kept];
    text.remove_prefix(kept + 1);
  }
  return out;
}

}  // namespace glint::cli
