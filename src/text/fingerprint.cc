#include "text/fingerprint.h"

#include "base/hash.h"

namespace glint::text {

std::string Fingerprint(const TokenizerData& data) {
  Hasher hash;
  hash.AddText("glint tokenizer 1");
  hash.AddNumber(data.tokens.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    hash.AddNumber(static_cast<uint64_t>(data.kinds[id]));
    if (data.kinds[id] != TokenKind::kUnused) hash.AddText(data.tokens[id]);
  }
  hash.AddNumber(data.merges.size());
  for (const auto& [left, right] : data.merges) hash.AddText(left), hash.AddText(right);
  hash.AddNumber(data.ignore_merges ? 1 : 0);
  return Hex(hash.Value());
}

}  // namespace glint::text
