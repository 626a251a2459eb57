// Ctrl-C and SIGTERM as a flag that work asks for, so that it can stop cleanly and leave nothing half-written.
#pragma once

namespace glint::cli {

// The first signal sets the flag; a second one while it is set ends the process at once, as it would have without us.
void CatchInterrupts();
// For chat, where Ctrl-C is a way to talk: a second SIGINT does not end the process either.
void CatchInterruptsForever();

bool Interrupted();
int InterruptExitCode();  // 130 for SIGINT, 143 for SIGTERM
bool Terminated();        // SIGTERM: the whole program is meant, not the work at hand
void ClearInterrupt();    // forgets a SIGINT; SIGTERM stays

// Waits until `fd` can be read (true) or Interrupted() (false). No signal is lost between looking and waiting.
bool WaitReadable(int fd);

}  // namespace glint::cli
