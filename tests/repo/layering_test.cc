// The layers of docs/design.md point one way: reads the includes of src/ and include/ and holds them to the
// table below.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// What a folder of src/ may include: of other folders ("src" column of the design page, and what the layer
// "knows nothing of" taken out), and of the public headers.
struct Layer {
  Names folders;
  Names headers;  // of include/glint/
};

const std::map<std::string, Layer>& Layers() {
  static const Names kLow{"status.h"}, kText{"answer.h", "status.h", "tokenizer.h"};
  static const Names kAll{"answer.h", "status.h", "tokenizer.h", "model.h", "session.h", "sampler.h"};
  static const std::map<std::string, Layer> kLayers{
      {"base", {{}, kLow}},
      {"gguf", {{"base"}, kLow}},
      {"quant", {{"base"}, kLow}},
      {"text", {{"base", "gguf"}, kText}},
      {"grammar", {{"base"}, kText}},
      {"model", {{"base", "gguf", "quant", "text"}, kText}},
      {"plan", {{"base", "quant", "model"}, kLow}},
      {"cpu", {{"base", "quant", "model", "plan"}, kLow}},
      {"cuda", {{"base", "quant", "model", "plan"}, kLow}},
      {"engine", {{"base", "gguf", "quant", "text", "model", "plan", "cpu", "cuda"}, kAll}},
      {"serve", {{"base", "text", "grammar", "model", "engine"}, kAll}},
      {"cli",
       {{"base", "gguf", "quant", "text", "grammar", "model", "plan", "cpu", "cuda", "engine", "serve"},
        kAll}},
  };
  return kLayers;
}

// Third-party headers are confined: changing a library, or what it costs to compile, then concerns a known
// few files.
struct Confined {
  std::string prefix;  // of the header's name
  std::regex files;    // where it may be included (path from the repository's root)
};

const std::vector<Confined>& ConfinedHeaders() {
  static const std::vector<Confined> kConfined{
      {"CLI/", std::regex("src/cli/[a-z0-9_]+\\.(h|cc)")},
      {"toml++/", std::regex("src/cli/config_file\\.cc")},
      {"boost/asio", std::regex("src/serve/http_server\\.cc")},
      {"boost/beast", std::regex("src/serve/http_server\\.cc")},
      {"openssl/", std::regex("src/serve/http_server\\.cc")},
      {"boost/json", std::regex("src/.*\\.cc|src/base/[a-z0-9_]*json[a-z0-9_]*\\.h")},
      {"boost/", std::regex("src/.*\\.cc|src/base/[a-z0-9_]*json[a-z0-9_]*\\.h")},
      {"fmt/", std::regex("src/(?!.*\\.cuh?$).*")},
      {"sqlite3.h", std::regex("src/serve/response_store\\.cc")},
      {"spdlog/", std::regex("src/base/.*\\.cc")},
      {"histedit.h", std::regex("src/cli/.*\\.cc")},
      {"editline/", std::regex("src/cli/.*\\.cc")},
      {"xxhash.h", std::regex("src/base/hash\\.cc")},
      {"zstd", std::regex("src/base/compress\\.cc")},
      {"cuda", std::regex("src/cuda/.*")},
      {"cub/", std::regex("src/cuda/.*\\.cuh?")},
      {"mma.h", std::regex("src/cuda/.*\\.cuh?")},
      {"nvtx3/", std::regex("src/cuda/ranges\\.cc")},
      {"immintrin.h", std::regex("src/(cpu|base|quant)/.*")},
      {"arm_neon.h", std::regex("src/(cpu|base|quant)/.*")},
      {"gtest/", std::regex("tests/.*")},
  };
  return kConfined;
}

// Standard C and C++ headers have no slash and, but for C's, no dot.
bool IsSystem(const std::string& header) {
  static const std::regex kStandard(
      "[a-z_]+|std[a-z]+\\.h|(sys|linux|asm|netinet|arpa)/[a-z0-9_]+\\.h|"
      "(unistd|fcntl|signal|semaphore|netdb|termios|poll|sched|pthread|errno|time|dirent|cpuid|limits|locale|"
      "langinfo|wchar)"
      "\\.h");
  return std::regex_match(header, kStandard);
}

// One sentence for every include of `text` (the file at `path`, from the repository's root) that is not
// allowed.
std::vector<std::string> Violations(const std::string& path, const std::string& text) {
  static const std::regex kInclude("^[ \\t]*#[ \\t]*include[ \\t]*([\"<])([^\">]+)[\">]");
  std::vector<std::string> found;
  const bool is_public = path.starts_with("include/");
  const std::string folder = is_public ? "" : path.substr(4, path.find('/', 4) - 4);
  const auto layer = Layers().find(folder);
  if (!is_public && layer == Layers().end()) return {path + ": no layer " + folder + " in docs/design.md"};

  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const bool quoted = match[1] == "\"";
    const std::string header = match[2];
    const std::string where = path + ":" + std::to_string(number) + ": ";
    const std::string to = header.substr(0, header.find('/'));
    if (quoted) {
      if (header.find("..") != std::string::npos || header.find('/') == std::string::npos) {
        found.push_back(where + header + " is not named from src/ or include/");
      } else if (to == "glint") {
        const bool allowed = is_public || layer->second.headers.contains(header.substr(6));
        if (!allowed) found.push_back(where + folder + " must not know " + header);
      } else if (is_public) {
        found.push_back(where + "a public header includes the internal " + header);
      } else if (to != folder && !layer->second.folders.contains(to)) {
        found.push_back(where + folder + " must not include " + header);
      }
      // fmt and whatever includes it does not compile under nvcc: device code takes plain argument structs.
      if ((path.ends_with(".cu") || path.ends_with(".cuh")) && to != folder)
        found.push_back(where + "a .cu file includes headers of src/cuda only, not " + header);
    } else {
      const auto confined = std::find_if(ConfinedHeaders().begin(), ConfinedHeaders().end(),
                                         [&](const Confined& c) { return header.starts_with(c.prefix); });
      if (confined != ConfinedHeaders().end()) {
        if (!std::regex_match(path, confined->files))
          found.push_back(where + "<" + header + "> does not belong here");
      } else if (!IsSystem(header)) {
        found.push_back(where + "<" + header + "> is no library that docs/dependencies.md lists");
      }
    }
  }
  return found;
}

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Layering, NoIncludeReachesBack) {
  const fs::path root = GLINT_SOURCE_DIR;
  int files = 0;
  for (const char* top : {"src", "include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      static const Names kSources{".h", ".cc", ".cu", ".cuh", ".inc"};
      if (!entry.is_regular_file() || !kSources.contains(entry.path().extension().string())) continue;
      ++files;
      for (const auto& v : Violations(fs::relative(entry.path(), root).generic_string(), Read(entry.path())))
        ADD_FAILURE() << v;
    }
  }
  EXPECT_GT(files, 30) << "is " << root << " the repository?";
}

// The page a contributor reads and the table of this test name the same folders in the same order: no layer
// may include one that comes after it.
TEST(Layering, TableIsTheDesignPages) {
  std::istringstream page(Read(fs::path(GLINT_SOURCE_DIR) / "docs/design.md"));
  std::vector<std::string> order;
  static const std::regex kRow("^\\| `src/([a-z]+)/` \\|.*");
  std::smatch match;
  for (std::string line; std::getline(page, line);)
    if (std::regex_match(line, match, kRow)) order.push_back(match[1]);
  ASSERT_EQ(order.size(), Layers().size());
  for (size_t i = 0; i < order.size(); ++i) {
    const auto layer = Layers().find(order[i]);
    ASSERT_NE(layer, Layers().end()) << order[i];
    for (const auto& folder : layer->second.folders)
      EXPECT_LT(std::find(order.begin(), order.end(), folder) - order.begin(), static_cast<std::ptrdiff_t>(i))
          << order[i] << " includes " << folder;
  }
}

// The check can fail: each of these lines alone is a violation, and each of the others is none.
TEST(Layering, SeesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"src/base/file.cc", "#include \"gguf/gguf.h\""},
      {"src/quant/q8_0.cc", "#include \"gguf/gguf.h\""},
      {"src/model/load.cc", "  #  include \"cpu/backend.h\""},
      {"src/plan/plan.cc", "#include \"cpu/product.h\""},
      {"src/cpu/stages.cc", "#include \"cuda/devices.h\""},
      {"src/engine/session.cc", "#include \"cli/run.h\""},
      {"src/base/file.cc", "#include \"glint/model.h\""},
      {"src/text/tokenizer.cc", "#include \"../base/file.h\""},
      {"src/text/tokenizer.cc", "#include \"tokenizer.h\""},
      {"include/glint/model.h", "#include \"engine/model.h\""},
      {"include/glint/model.h", "#include <fmt/core.h>"},
      {"src/cuda/kda.cu", "#include \"glint/status.h\""},
      {"src/cuda/kda.cu", "#include <fmt/core.h>"},
      {"src/engine/session.cc", "#include <cuda_runtime_api.h>"},
      {"src/engine/session.cc", "#include <CLI/CLI.hpp>"},
      {"src/model/convert.h", "#include <boost/json.hpp>"},
      {"src/model/convert.cc", "#include <nlohmann/json.hpp>"},
      {"src/gpu/kda.cc", "#include <vector>"},
      {"src/serve/metrics.cc", "#include <boost/asio/ip/tcp.hpp>"},
      {"src/serve/http.h", "#include <boost/beast/http.hpp>"},
      {"src/serve/scheduler.cc", "#include <openssl/sha.h>"},
      {"src/serve/openai_responses.cc", "#include <sqlite3.h>"},
      {"src/engine/session.cc", "#include \"serve/http.h\""},
  };
  for (const auto& [path, text] : wrong)
    EXPECT_EQ(Violations(path, "#pragma once\n" + text + "\n").size(), 1u) << path << " " << text;
  const std::vector<std::pair<std::string, std::string>> right{
      {"src/gguf/gguf.cc",
       "#include \"base/file.h\"\n#include \"gguf/gguf.h\"\n#include \"glint/status.h\"\n"},
      {"src/cuda/kda.cu", "#include \"cuda/kda.h\"\n#include <cuda_runtime_api.h>\n"},
      {"src/model/convert.cc",
       "#include <boost/json.hpp>\n#include <sys/stat.h>\n#include <fmt/core.h>\n#include <vector>\n"},
      {"src/text/tokenizer.h", "// #include \"cpu/backend.h\"\n#include \"glint/tokenizer.h\"\n"},
      {"include/glint/model.h", "#include <cstdint>\n#include \"glint/status.h\"\n"},
  };
  for (const auto& [path, text] : right)
    EXPECT_EQ(Violations(path, text), std::vector<std::string>{}) << path;
}

}  // namespace
