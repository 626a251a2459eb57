#include "cli/cache_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/memory.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

constexpr uint64_t kMostRam =
    8'000'000'000;  // without --cache-ram; less where the machine has less than four times as much

// Of an option that was given, or `otherwise`.
Result<uint64_t> BytesOf(const char* name, const std::optional<std::string>& text, uint64_t otherwise) {
  if (!text) return otherwise;
  if (const auto bytes = ParseBytes(*text)) return *bytes;
  return Status(Code::kBadInput, fmt::format("{}: '{}' is no size; write it as 8GB or 500M", name, *text));
}

}  // namespace

void CacheChoice::Declare(Options& options) {
  options.Group("Kept beginnings of prompts");
  options.Value("--cache-ram", "SIZE|0", &ram_,
                "Memory for beginnings of prompts, from which later ones go on; without it 8GB, or a quarter "
                "of what the "
                "machine has free. 0: none are kept");
  options.Value("--cache-dir", "DIR", &directory_,
                "Where they are kept as well, and found after a restart; made if it is not there. It holds "
                "what was said, for "
                "its owner's eyes");
  options.Value("--cache-disk", "SIZE", &disk_, "Disk space for them; without it 64GB");
  options.Value("--cache-write", "SIZE|0", &write_rate_,
                "What may be written to the disk in an hour, after a first burst of as much; without it 8GB. "
                "0: no limit");
  options.Value(
      "--cache-interval", "N", &interval_, 64, INT32_MAX,
      "Tokens between them in a long prompt, growing to a quarter of the position; without it 2048");
  options.Check([this]() -> Status {
    if (directory_ == "") return {Code::kBadInput, "--cache-dir: the name is empty"};
    if (!directory_ && (disk_ || write_rate_))
      return {Code::kBadInput, "--cache-disk and --cache-write are of --cache-dir, which is not given"};
    for (const auto& [name, text] : {std::pair("--cache-ram", &ram_), std::pair("--cache-disk", &disk_),
                                     std::pair("--cache-write", &write_rate_)}) {
      if (const auto bytes = BytesOf(name, *text, 0); !bytes.ok()) return bytes.status();
    }
    return {};
  });
}

Result<std::optional<serve::PrefixCacheOptions>> CacheChoice::Resolve() const {
  serve::PrefixCacheOptions cache;
  const auto ram = BytesOf("--cache-ram", ram_, std::min(kMostRam, AvailableMemory().bytes / 4));
  const auto disk = BytesOf("--cache-disk", disk_, 64'000'000'000);
  const auto rate = BytesOf("--cache-write", write_rate_, 8'000'000'000);
  for (const auto* bytes : {&ram, &disk, &rate}) {
    if (!bytes->ok()) return bytes->status();
  }
  if (*ram == 0) return std::optional<serve::PrefixCacheOptions>();
  cache.ram_bytes = *ram, cache.disk_bytes = *disk, cache.write_bytes_per_hour = *rate;
  cache.directory = directory_.value_or("");
  if (interval_) cache.interval = *interval_;
  return std::optional(std::move(cache));
}

}  // namespace glint::cli
