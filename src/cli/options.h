// Command-line options of one subcommand. The parser behind it (CLI11) stays in options.cc: it costs 16 seconds of
// compilation per file that includes it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files.h"
#include "glint/status.h"

namespace glint::cli {

// Declared first, then parsed once. Pointers passed in must outlive Parse; they are written only by it.
// `names` is a comma-separated list as in "-m,--model"; `placeholder` stands for the value in the help text.
class Options {
 public:
  // `command` as typed, e.g. "glint run"; `summary` is one sentence.
  Options(std::string command, const std::string& summary);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void Positional(const std::string& name, std::optional<std::string>* value, const std::string& help);
  void RequiredPositional(const std::string& name, std::string* value, const std::string& help);
  void PositionalList(const std::string& name, std::vector<std::string>* values, const std::string& help);

  void Flag(const std::string& names, bool* value, const std::string& help);
  void Value(const std::string& names, const std::string& placeholder, std::optional<std::string>* value,
             const std::string& help);
  // Whole numbers and numbers with a point, inside [low, high]; the message of a refusal says the range.
  void Value(const std::string& names, const std::string& placeholder, std::optional<int64_t>* value,
             int64_t low, int64_t high, const std::string& help);
  void Value(const std::string& names, const std::string& placeholder, std::optional<double>* value,
             double low, double high, const std::string& help);
  // Whole numbers of 64 bits without a sign: seeds.
  void Value(const std::string& names, const std::string& placeholder, std::optional<uint64_t>* value,
             const std::string& help);
  // May be given several times.
  void List(const std::string& names, const std::string& placeholder, std::vector<std::string>* values,
            const std::string& help);

  // Options declared after this are listed under the title.
  void Group(const std::string& title);
  // Printed below the options.
  void Notes(const std::string& text);
  void Examples(const std::vector<std::string>& lines);
  // Runs after parsing; its failure is a usage error. Checks run in the order they were added.
  void Check(std::function<Status()> check);

  // Adds --config FILE, which gives values to options that the command line does not give (config_file.h), and --print-config, which
  // prints all of them as such a file in place of the work. What is wrong in the file is a usage error that names its line.
  void Configurable();

  // What the command reads and writes; main.cc has it checked after parsing, before the work.
  CommandFiles& files();

  struct Parsed {
    enum class Kind : uint8_t { kRun, kHelp, kUsageError } kind = Kind::kRun;
    std::string text;  // the help text (or another that is wanted in place of the work), or what is wrong
  };
  Parsed Parse(const std::vector<std::string>& arguments);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The whole of `text` as a number; nothing if anything else is in it.
std::optional<int64_t> ParseInteger(std::string_view text);
std::optional<double> ParseNumber(std::string_view text);

// The candidate nearest to `word` by edits, or empty if none is near enough to be meant.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace glint::cli
