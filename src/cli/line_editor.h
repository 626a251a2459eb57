// Lines from a person (libedit: editing, history) or from a script (plain reading).
#pragma once
#include <memory>
#include <string>

namespace glint::cli {

// Where chat keeps its history: $XDG_STATE_HOME/glint/history, or ~/.local/state/glint/history. Empty if there is no home.
std::string HistoryPath();

class LineEditor {
 public:
  // Edits if stdin and stdout are terminals; otherwise reads lines and shows no prompt. `history_path` may be empty: no history file.
  // The file and its folder are made with modes 0600 and 0700.
  explicit LineEditor(const std::string& history_path);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool interactive() const;

  enum class Event : unsigned char { kLine, kEnd, kInterrupted };
  // One line without its end. A bracketed paste of several lines counts as one line and keeps its newlines.
  Event Read(const std::string& prompt, std::string* line);
  // Puts an entry (possibly of several lines) into the history, unless it repeats the last one.
  void Remember(const std::string& entry);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::cli
