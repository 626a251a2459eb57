// Any bytes as a vocabulary (of a GGUF file or a tokenizer.json), and any text through it. Input: a byte that says which (0 GGUF, 1
// JSON, others the small vocabulary), a 16-bit length, the text of that length, the file.
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "fuzz/input.h"
#include "fuzz/small_tokenizer.h"
#include "gguf/gguf.h"
#include "text/fingerprint.h"
#include "text/gguf_tokenizer.h"
#include "text/hf_tokenizer.h"

namespace {

using glint::text::Tokenizer;

std::string BytesOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += tokenizer.Bytes(id);
  return out;
}

// Whatever the vocabulary: the text comes back byte for byte, no control token comes from plain text, and the cut of a
// conversation into parts does not matter.
void RoundTrip(const Tokenizer& tokenizer, const std::string& text) {
  const auto plain = tokenizer.Encode(text, false);
  if (BytesOf(tokenizer, plain) != text) std::abort();
  for (const int32_t id : plain) {
    if (tokenizer.Kind(id) != glint::text::TokenKind::kNormal) std::abort();
  }
  if (BytesOf(tokenizer, tokenizer.Encode(text, true)) != text) std::abort();
  const size_t middle = text.size() / 2;
  const std::vector<glint::ChatPart> parts = {{text.substr(0, middle), false}, {text.substr(middle), false}};
  if (tokenizer.Encode(parts) != plain) std::abort();
}

const std::string& Directory() {
  static const std::string directory = [] {
    std::string pattern = "/tmp/glint-fuzz-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    return pattern;
  }();
  return directory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t length = std::min<size_t>(data[1] | data[2] << 8, size - 3);
  const std::string text(reinterpret_cast<const char*>(data) + 3, length);
  const uint8_t* const rest = data + 3 + length;
  const size_t rest_size = size - 3 - length;
  if (data[0] > 1) {
    RoundTrip(glint::fuzz::SmallTokenizer(), text);
    return 0;
  }
  glint::Result<glint::text::TokenizerData> read = glint::Status();
  if (data[0] == 0) {
    const glint::fuzz::InputFile input(rest, rest_size);
    const auto file = glint::gguf::File::Open(input.path(), [](uint32_t) {
      return glint::gguf::BlockSize{0, 0};
    });
    if (!file.ok()) return 0;
    read = glint::text::ReadGgufTokenizer(*file);
  } else {
    std::ofstream(Directory() + "/tokenizer.json", std::ios::binary)
        .write(reinterpret_cast<const char*>(rest), static_cast<std::streamsize>(rest_size));
    read = glint::text::ReadHfTokenizer(Directory());
  }
  if (!read.ok()) return 0;
  if (glint::text::Fingerprint(*read).size() != 32) std::abort();
  const auto tokenizer = Tokenizer::Create(std::move(*read));
  if (tokenizer.ok()) RoundTrip(**tokenizer, text);
  return 0;
}
