// Ctrl-C, SIGTERM, SIGHUP (the terminal has gone) and SIGQUIT (Ctrl-\, which must not leave a terminal raw) as a flag that work asks for, so that it can stop cleanly and leave nothing half-written.
#pragma once

namespace glint::cli {

// The first signal sets the flag; a second one while it is set ends the process at once, as it would have without us.
void CatchInterrupts();
// For chat, where Ctrl-C is a way to talk: a second SIGINT does not end the process either.
void CatchInterruptsForever();

// From now on SIGHUP calls `act` and is no interrupt: what servers do whose log is renamed. `act` may do what a signal handler may.
void OnHangup(void (*act)());

bool Interrupted();
int InterruptExitCode();  // 130 for SIGINT, and so on: 128 and the number
bool Terminated();        // any but SIGINT: the whole program is meant, not the work at hand
void ClearInterrupt();    // forgets a SIGINT; the others stay

// Waits until `fd` can be read (true) or Interrupted() (false). No signal is lost between looking and waiting.
bool WaitReadable(int fd);

}  // namespace glint::cli
