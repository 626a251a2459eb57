#include "cli/options.h"

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "cli/config_file.h"

namespace glint::cli {
namespace {

constexpr size_t kHelpColumn = 32;  // where the descriptions begin
constexpr size_t kHelpWidth = 100;

// Breaks at spaces so that lines stay within kHelpWidth; continuation lines are indented to `column`.
std::string Wrap(const std::string& text, size_t column) {
  std::string out;
  size_t at = column;
  for (size_t begin = 0; begin < text.size();) {
    const size_t space = text.find(' ', begin);
    const std::string word = text.substr(begin, space == std::string::npos ? space : space - begin);
    if (at > column && at + 1 + word.size() > kHelpWidth) {
      out += "\n" + std::string(column, ' ');
      at = column;
    } else if (at > column) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    if (space == std::string::npos) break;
    begin = space + 1;
  }
  return out;
}

// The whole help text: usage, arguments, options by group in the order they were declared.
std::string Help(const CLI::App& app, const std::string& notes, const std::vector<std::string>& examples) {
  std::string usage = "Usage: " + app.get_name() + " [OPTIONS]", arguments;
  std::vector<std::pair<std::string, std::string>> groups;
  for (const CLI::Option* option : app.get_options()) {
    const bool positional = option->get_positional();
    std::string left = "  ";
    if (positional) {
      left += option->get_name(true);
      usage += option->get_required() ? " " + option->get_name(true) : " [" + option->get_name(true) + "]";
      if (option->get_expected_max() > 1) usage += "...";
    } else {
      for (const std::string& name : option->get_snames()) left += "-" + name + ", ";
      for (const std::string& name : option->get_lnames()) left += "--" + name;
      if (!option->get_type_name().empty()) left += " " + option->get_type_name();
    }
    left += left.size() + 2 > kHelpColumn ? "\n" + std::string(kHelpColumn, ' ')
                                          : std::string(kHelpColumn - left.size(), ' ');
    const std::string line = left + Wrap(option->get_description(), kHelpColumn) + "\n";
    if (positional) {
      arguments += line;
      continue;
    }
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& g) { return g.first == option->get_group(); });
    if (group == groups.end()) group = groups.insert(groups.end(), {option->get_group(), ""});
    group->second += line;
  }
  std::string out = app.get_description() + "\n\n" + usage + "\n";
  if (!arguments.empty()) out += "\nArguments:\n" + arguments;
  std::rotate(groups.begin(), groups.begin() + 1, groups.end());  // --help is declared first and shown last
  for (const auto& [title, lines] : groups) out += fmt::format("\n{}:\n{}", title, lines);
  for (size_t begin = 0; begin < notes.size();) {
    const size_t end = std::min(notes.find('\n', begin), notes.size());
    if (begin == 0) out += '\n';
    const std::string line = notes.substr(begin, end - begin);
    out += (line.starts_with(' ') ? line : Wrap(line, 0)) + "\n";  // indented lines are laid out already
    begin = end + 1;
  }
  if (!examples.empty()) out += "\nExamples:\n";
  for (const std::string& line : examples) out += "  " + line + "\n";
  return out;
}

// Insertions, deletions, replacements and swaps of neighbours that make `b` of `a` (optimal string alignment).
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// Reads one value given; returns what is wrong with it, or nothing.
using Take = std::function<std::string(const std::string&)>;

template <class T>
Take Store(T* value) {
  return [value](const std::string& text) {
    *value = text;
    return std::string();
  };
}

Take Collect(std::vector<std::string>* values) {
  return [values](const std::string& text) {
    values->push_back(text);
    return std::string();
  };
}

}  // namespace

struct Options::Impl {
  // An option as a configuration file names it.
  struct Setting {
    std::string name;  // its long name, without dashes; empty: it has none
    ConfigEntry::Kind kind = ConfigEntry::Kind::kString;
    Take take = {};
    CLI::Option* option = nullptr;
    std::vector<std::string> given = {};  // as text
    std::string where = {};               // "--name", or file and line
  };

  CLI::App app;
  std::string group = "Options", notes;
  std::vector<std::string> examples;
  std::vector<std::function<Status()>> checks;
  CommandFiles files;
  std::deque<Setting> settings;  // a deque: callbacks hold on to them
  bool print_config = false;
  std::optional<std::string> config;

  Impl(std::string command, const std::string& summary) : app(summary, std::move(command)) {}

  std::vector<std::string> LongNames() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
  }

  // All values are taken as text and read here, so that every refusal is worded alike.
  CLI::Option* Add(const std::string& names, const std::string& placeholder, const std::string& help,
                   Take take, ConfigEntry::Kind kind = ConfigEntry::Kind::kString) {
    const std::string shown = names.substr(names.rfind(',') == std::string::npos ? 0 : names.rfind(',') + 1);
    Setting& setting = NewSetting(shown, kind, std::move(take));
    setting.option = app.add_option(
        names,
        [&setting, shown](const CLI::results_t& given) {
          for (const std::string& text : given) {
            const std::string wrong = setting.take(text);
            if (!wrong.empty()) throw CLI::ValidationError(shown, wrong);
          }
          setting.given = given, setting.where = shown;
          return true;
        },
        help);
    setting.option->type_name(placeholder)->group(group);
    return setting.option;
  }

  Setting& NewSetting(const std::string& shown, ConfigEntry::Kind kind, Take take) {
    return settings.emplace_back(
        Setting{shown.starts_with("--") ? shown.substr(2) : std::string(), kind, std::move(take)});
  }

  bool InConfig(const Setting& setting) const {
    return !setting.name.empty() && setting.name != "config" && setting.name != "print-config";
  }

  // Gives the file's values to options that have none. Options of the command line are checked for their kind too.
  Status TakeConfig(const std::string& path) {
    if (path.empty()) return {Code::kBadInput, "--config: \"\": names no file"};
    const auto entries = ReadConfig(path);
    if (!entries.ok()) return entries.status();
    for (const ConfigEntry& entry : *entries) {
      const std::string where = fmt::format("{}:{}", path, entry.line);
      const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
        return InConfig(setting) && setting.name == entry.key;
      });
      if (found == settings.end()) {
        std::vector<std::string> names;
        for (const Setting& setting : settings)
          if (InConfig(setting)) names.push_back(setting.name);
        const std::string meant = Nearest(entry.key, names);
        return {Code::kBadFile, fmt::format("{}: unknown key '{}'{}", where, entry.key,
                                            meant.empty() ? "" : "; did you mean " + meant + "?")};
      }
      using Kind = ConfigEntry::Kind;
      const bool fits = entry.kind == found->kind ||
                        (found->kind == Kind::kNumber && entry.kind == Kind::kInteger) ||
                        (found->kind == Kind::kStrings && entry.kind == Kind::kString);
      if (!fits) {
        return {Code::kBadFile, fmt::format("{}: {} wants {}, and this is {}", where, entry.key,
                                            Name(found->kind), Name(entry.kind))};
      }
      if (!found->given.empty()) continue;  // the command line wins
      for (const std::string& text : entry.values) {
        if (const std::string wrong = found->take(text); !wrong.empty())
          return {Code::kBadFile, fmt::format("{}: {}: {}", where, entry.key, wrong)};
      }
      found->given = entry.values, found->where = where;
    }
    return {};
  }

  // What --print-config prints: a file that says the same as this command line, options that were not given as comments.
  std::string ConfigText() const {
    using Kind = ConfigEntry::Kind;
    std::string out = "# " + app.get_name() + " --config FILE takes this.\n", title;
    for (const Setting& setting : settings) {
      if (!InConfig(setting)) continue;
      if (setting.option->get_group() != title) {
        title = setting.option->get_group();
        out += fmt::format("\n## {}\n", title);
      }
      out += "\n";
      std::string help = Wrap(setting.option->get_description(), 2);
      for (size_t begin = 0; begin < help.size();) {
        const size_t end = std::min(help.find('\n', begin), help.size());
        const size_t text = std::min(help.find_first_not_of(' ', begin), end);
        out += "# " + help.substr(text, end - text) + "\n";
        begin = end + 1;
      }
      if (setting.given.empty()) {
        const std::string shown = setting.kind == Kind::kBool ? "true" : setting.option->get_type_name();
        out += fmt::format("# {} = {}\n", setting.name, shown);
        continue;
      }
      std::string value;
      if (setting.kind == Kind::kStrings) {
        for (const std::string& text : setting.given)
          value += (value.empty() ? "[" : ", ") + TomlString(text);
        value += "]";
      } else {
        // Of an option that was given several times the last counts.
        value = setting.kind == Kind::kString ? TomlString(setting.given.back()) : setting.given.back();
      }
      out += fmt::format("{} = {}  # {}\n", setting.name, value, setting.where);
    }
    return out;
  }

  std::string WordError(const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
      const std::vector<std::string> extra = app.remaining();
      const auto dashed = std::find_if(extra.begin(), extra.end(),
                                       [](const std::string& s) { return s.size() > 1 && s[0] == '-'; });
      if (dashed == extra.end()) {
        return fmt::format("unexpected argument '{}' (quote text that has spaces in it)",
                           extra.empty() ? "" : extra[0]);
      }
      const std::string name = dashed->substr(0, dashed->find('='));
      const std::string meant = Nearest(name, LongNames());
      return fmt::format("unknown option {}{}", name, meant.empty() ? "" : "; did you mean " + meant + "?");
    }
    std::string what = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
      if (what.find("flag override") != std::string::npos)
        return fmt::format("option --{} takes no value", what.substr(0, what.find(' ')));
      return fmt::format("option {} needs a value", what.substr(0, what.find(':')));
    }
    return what;
  }
};

Options::Options(std::string command, const std::string& summary)
    : impl_(std::make_unique<Impl>(std::move(command), summary)) {
  impl_->app.set_help_flag("-h,--help", "Show this text")->group("Other options");
}

Options::~Options() = default;

void Options::Positional(const std::string& name, std::optional<std::string>* value,
                         const std::string& help) {
  impl_->Add(name, "", help, Store(value));
}

void Options::RequiredPositional(const std::string& name, std::string* value, const std::string& help) {
  impl_->Add(name, "", help, Store(value))->required();
}

void Options::PositionalList(const std::string& name, std::vector<std::string>* values,
                             const std::string& help) {
  impl_->Add(name, "", help, Collect(values))
      ->expected(1, 1 << 29)
      ->allow_extra_args()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Options::Flag(const std::string& names, bool* value, const std::string& help) {
  const std::string shown = names.substr(names.rfind(',') == std::string::npos ? 0 : names.rfind(',') + 1);
  Impl::Setting& setting =
      impl_->NewSetting(shown, ConfigEntry::Kind::kBool, [value](const std::string& text) -> std::string {
        *value = text == "true";
        return {};
      });
  setting.option = impl_->app
                       .add_flag_callback(
                           names,
                           [value, &setting, shown] {
                             *value = true;
                             setting.given = {"true"}, setting.where = shown;
                           },
                           help)
                       ->disable_flag_override()
                       ->group(impl_->group);
}

void Options::Value(const std::string& names, const std::string& placeholder,
                    std::optional<std::string>* value, const std::string& help) {
  impl_->Add(names, placeholder, help, Store(value))->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Options::Value(const std::string& names, const std::string& placeholder, std::optional<int64_t>* value,
                    int64_t low, int64_t high, const std::string& help) {
  const Take take = [value, low, high](const std::string& text) -> std::string {
    const auto number = ParseInteger(text);
    if (!number || *number < low || *number > high) {
      return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
    }
    *value = *number;
    return {};
  };
  impl_->Add(names, placeholder, help, take, ConfigEntry::Kind::kInteger)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Options::Value(const std::string& names, const std::string& placeholder, std::optional<double>* value,
                    double low, double high, const std::string& help) {
  const Take take = [value, low, high](const std::string& text) -> std::string {
    const auto number = ParseNumber(text);
    if (!number || *number < low || *number > high) {
      return fmt::format("'{}' is not a number from {} to {}", text, low, high);
    }
    *value = *number;
    return {};
  };
  impl_->Add(names, placeholder, help, take, ConfigEntry::Kind::kNumber)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Options::Value(const std::string& names, const std::string& placeholder, std::optional<uint64_t>* value,
                    const std::string& help) {
  const Take take = [value](const std::string& text) -> std::string {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || text.empty())
      return fmt::format("'{}' is not a whole number from 0 to {}", text, UINT64_MAX);
    *value = number;
    return {};
  };
  impl_->Add(names, placeholder, help, take, ConfigEntry::Kind::kInteger)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Options::List(const std::string& names, const std::string& placeholder, std::vector<std::string>* values,
                   const std::string& help) {
  impl_->Add(names, placeholder, help, Collect(values), ConfigEntry::Kind::kStrings)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Options::Group(const std::string& title) { impl_->group = title; }
void Options::Notes(const std::string& text) { impl_->notes = text; }
void Options::Examples(const std::vector<std::string>& lines) { impl_->examples = lines; }
void Options::Check(std::function<Status()> check) { impl_->checks.push_back(std::move(check)); }

void Options::Configurable() {
  Value(
      "--config", "FILE", &impl_->config,
      "Take options that the command line does not give from a TOML file: long names without dashes as keys");
  Flag("--print-config", &impl_->print_config, "Print all options as such a file, and end");
}

CommandFiles& Options::files() { return impl_->files; }

Options::Parsed Options::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    impl_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return {Parsed::Kind::kHelp, Help(impl_->app, impl_->notes, impl_->examples)};
  } catch (const CLI::ParseError& error) {
    return {Parsed::Kind::kUsageError, impl_->WordError(error)};
  }
  if (impl_->config) {
    if (const Status status = impl_->TakeConfig(*impl_->config); !status.ok())
      return {Parsed::Kind::kUsageError, status.message()};
  }
  for (const auto& check : impl_->checks) {
    const Status status = check();
    if (!status.ok()) return {Parsed::Kind::kUsageError, status.message()};
  }
  if (impl_->print_config) return {Parsed::Kind::kHelp, impl_->ConfigText()};
  if (const Status status = impl_->files.CheckNames(); !status.ok())
    return {Parsed::Kind::kUsageError, status.message()};
  return {};
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || std::isnan(value))
    return std::nullopt;
  return value;
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t fewest = 1 + std::max<size_t>(word.size() / 3, 1);  // more edits than this is another word
  for (const std::string& candidate : candidates) {
    const size_t edits = Edits(word, candidate);
    if (edits < fewest) fewest = edits, best = candidate;
  }
  return best;
}

}  // namespace glint::cli
