// glint: one subcommand a file; this one picks it, and words what went wrong.
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/version.h"

namespace glint::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr Subcommand kSubcommands[] = {
    {"run", "Continue a text, or answer one question", DeclareRun},
    {"chat", "Talk with the model", DeclareChat},
    {"serve", "Answer requests over HTTP: the OpenAI and Anthropic APIs", DeclareServe},
    {"convert", "Make a GGUF file from a Hugging Face checkpoint", DeclareConvert},
    {"quantize", "Make a file of other weight types of a GGUF file", DeclareQuantize},
    {"merge", "Make one GGUF file of a split set", DeclareMerge},
    {"split", "Make a split set of a GGUF file", DeclareSplit},
    {"inspect", "Show what is in a model, and where it fits", DeclareInspect},
    {"tokenize", "Turn text into token ids", DeclareTokenize},
    {"detokenize", "Turn token ids into text", DeclareDetokenize},
    {"logits", "Write a model's logits as a NumPy file", DeclareLogits},
    {"plan", "Show the steps of a forward pass and what serves them", DeclarePlan},
    {"bench", "Measure tokens per second, and compare settings", DeclareBench},
    {"bench-serve", "Measure a server under load, and check its answers", DeclareBenchServe},
    {"perplexity", "Measure how well a model predicts a text", DeclarePerplexity},
    {"imatrix", "Measure which input channels of the weights matter, on a text", DeclareImatrix},
    {"compare", "Show what differs between two files of a model", DeclareCompare},
    {"verify", "Prove the levers: hold every step to the canonical stages", DeclareVerify},
    {"profile", "Show where the time of a forward pass goes", DeclareProfile},
};

std::string Overview() {
  std::string text = "glint runs GLM-5.3-Flash models.\n\nUsage: glint COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Subcommand& command : kSubcommands)
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  text +=
      "\n`glint COMMAND --help` explains a command; `glint --version` tells the version.\n"
      "Without -m, commands use the small model that comes with glint.\n"
      "\nTry:\n"
      "  glint run --chat \"Tell me a story about a fox.\"\n"
      "  glint chat\n"
      "\nExit codes: 0 done, 1 the work failed, 2 the command line was wrong, 130 Ctrl-C.\n";
  return text;
}

int Usage(const std::string& command, const std::string& message) {
  PrintError(fmt::format("{}: {}\nSee `{} --help`.\n", command, TerminalText(message), command));
  return kUsage;
}

int PrintOrFail(const std::string& command, const std::string& text) {
  const Status status = Print(text);
  if (!status.ok() && !status.message().empty())
    PrintError(fmt::format("{}: {}\n", command, status.message()));
  return status.ok() ? 0 : kFailed;
}

// What is checked against the machine's memory fails with its numbers; this is for the rest. Files half-written are removed
// on the way here.
Result<int> Carefully(const CommandFiles& files, const Work& work) try {
  const Status status = files.Check();
  return status.ok() ? work() : status;
} catch (const std::bad_alloc&) {
  return Status(Code::kNoRoom, "the system has no more memory to give");
}

int Dispatch(std::vector<std::string> arguments) {
  if (arguments.empty()) return PrintOrFail("glint", Overview());
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "help" && !arguments.empty()) {  // glint help run
    name = arguments.front();
    arguments.front() = "--help";
    if (arguments.size() > 1) return Usage("glint", fmt::format("unexpected argument '{}'", arguments[1]));
  }
  const bool help = name == "--help" || name == "-h" || name == "help";
  if (help || name == "--version" || name == "version") {
    if (!arguments.empty()) return Usage("glint", fmt::format("unexpected argument '{}'", arguments[0]));
    return PrintOrFail("glint", help ? Overview() : VersionText() + "\n");
  }

  const auto* found = std::find_if(std::begin(kSubcommands), std::end(kSubcommands),
                                   [&](const Subcommand& command) { return command.name == name; });
  if (found == std::end(kSubcommands)) {
    std::vector<std::string> names;
    for (const Subcommand& command : kSubcommands) names.emplace_back(command.name);
    const std::string meant = Nearest(name, names);
    return Usage("glint", fmt::format("unknown {} '{}'{}", name.starts_with("-") ? "option" : "command", name,
                                      meant.empty() ? "" : "; did you mean " + meant + "?"));
  }

  const std::string command = fmt::format("glint {}", found->name);
  Options options(command, fmt::format("{}.", found->summary));
  const Work work = found->declare(options);
  const Options::Parsed parsed = options.Parse(arguments);
  if (parsed.kind == Options::Parsed::Kind::kHelp) return PrintOrFail(command, parsed.text);
  if (parsed.kind == Options::Parsed::Kind::kUsageError) return Usage(command, parsed.text);

  const Result<int> result = Carefully(options.files(), work);
  if (result.ok()) return *result;
  if (Interrupted()) {
    PrintError(command + ": interrupted\n");
    return InterruptExitCode();
  }
  // File names and tensor names are part of messages, and may hold anything.
  if (!result.status().message().empty()) {
    PrintError(fmt::format("{}: {}\n", command, TerminalText(result.status().message())));
  }
  return kFailed;
}

}  // namespace
}  // namespace glint::cli

int main(int argc, char** argv) {
  glint::cli::ReserveStandardStreams();
  signal(SIGPIPE, SIG_IGN);  // a closed stdout is an error of write, seen by Print
  signal(SIGXFSZ,
         SIG_IGN);  // a file that may not grow further is one too; a killed program would leave it behind
  glint::cli::CatchInterrupts();
  return glint::cli::Dispatch(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
