#include "cli/input.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace glint::cli {
namespace {

constexpr uint64_t kLargestText = uint64_t{1} << 30;

}  // namespace

Result<std::string> ReadStdin() {
  std::string text;
  char buffer[65536];
  while (true) {
    if (!WaitReadable(STDIN_FILENO)) return Status(Code::kBadInput, "interrupted");
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return Status(Code::kIo, std::string("reading stdin: ") + std::strerror(errno));
    }
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kLargestText) return Status(Code::kBadInput, "stdin: more than 1 GiB of text");
  }
}

Result<std::string> ReadText(const std::optional<std::string>& argument,
                             const std::optional<std::string>& file, std::string_view what) {
  if (argument) return *argument;
  if (file && *file != "-") return ReadFile(*file, kLargestText);
  if (!file && IsTerminal(STDIN_FILENO)) {
    return Status(Code::kBadInput,
                  fmt::format("no {}: give it as an argument, with -f FILE, or on stdin", what));
  }
  return ReadStdin();
}

Result<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::string list = text, where = "token ids";
  if (!text.empty() && text[0] == '@') {
    auto content = ReadFile(text.substr(1), kLargestText);
    if (!content.ok()) return content.status();
    list = std::move(*content);
    where = text.substr(1);
  }
  constexpr std::string_view kBetween = ", \t\r\n";
  std::vector<int32_t> ids;
  for (size_t begin = list.find_first_not_of(kBetween); begin < list.size();) {
    const size_t end = std::min(list.find_first_of(kBetween, begin), list.size());
    const auto id = ParseInteger(std::string_view(list).substr(begin, end - begin));
    if (!id || *id < 0 || *id > INT32_MAX) {
      return Status(Code::kBadInput,
                    fmt::format("{}: entry {}, {}, is not a token id (a whole number from 0 up)", where,
                                ids.size() + 1, Quoted(list.substr(begin, end - begin), 40)));
    }
    ids.push_back(static_cast<int32_t>(*id));
    begin = list.find_first_not_of(kBetween, end);
  }
  return ids;
}

Status CheckIds(const std::string& list, size_t fewest) {
  if (list == "@") return {Code::kBadInput, "no file's name after the @"};
  if (list.starts_with('@')) return {};
  const auto ids = ParseIds(list);
  if (!ids.ok()) return ids.status();
  if (ids->size() >= fewest) return {};
  if (ids->empty()) return {Code::kBadInput, "the list is empty"};
  return {Code::kBadInput, fmt::format("{} given; wanted {} or more", ids->size(), fewest)};
}

void DeclareIds(Options& options, std::optional<std::string>* list, const std::string& help, size_t fewest) {
  options.Value("--ids", "LIST", list, help);
  options.files().ReadsIds(list);
  options.Check([list, fewest]() -> Status {
    const Status status = *list ? CheckIds(**list, fewest) : Status();
    return status.ok() ? status : Status(status.code(), "--ids: " + status.message());
  });
}

}  // namespace glint::cli
