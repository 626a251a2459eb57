// What a terminal is and what may be written to it.
#pragma once
#include <string>
#include <string_view>

namespace glint::cli {

bool IsTerminal(int fd);
int Columns(int fd);        // width of the terminal; 80 if it does not say
bool TakesEscapes(int fd);  // a terminal that is not dumb: it understands escape sequences
bool WantsColour(int fd);   // TakesEscapes, and NO_COLOR is not set

// Text of several lines for a terminal or a message: newlines and tabs stay, everything else that could steer a terminal or reorder
// what surrounds it becomes visible (base/printable.h says how). Backslashes stay too: for text that is one line of
// foreign words, Printable() is the unambiguous form.
std::string TerminalText(std::string_view text);

}  // namespace glint::cli
