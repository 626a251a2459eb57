// Standard output, written at once and with its errors seen.
#pragma once
#include <string_view>

#include "glint/status.h"

namespace glint::cli {

// Writes all of `text` to stdout. If the reader has gone (EPIPE) the Status has an empty message: the program ends
// quietly, as a filter should. Other failures (a full disk) say so.
Status Print(std::string_view text);

// As Print, to stderr; failures are ignored, there is nobody to tell.
void PrintError(std::string_view text);

// Whether stdout and stderr are one file, pipe or terminal (2>&1): then what they get is read as one text.
bool StreamsAreOne();

// Makes sure that descriptors 0 to 2 are open, so that no model file becomes "stdout" of a process started without one.
void ReserveStandardStreams();

}  // namespace glint::cli
