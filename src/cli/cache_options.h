// The options of a server's prefix cache.
#pragma once
#include <optional>
#include <string>

#include "cli/options.h"
#include "glint/status.h"
#include "serve/prefix_cache.h"

namespace glint::cli {

class CacheChoice {
 public:
  void Declare(Options& options);
  // None: --cache-ram 0.
  Result<std::optional<serve::PrefixCacheOptions>> Resolve() const;

 private:
  std::optional<std::string> ram_, directory_, disk_, write_rate_;
  std::optional<int64_t> interval_;
};

}  // namespace glint::cli
