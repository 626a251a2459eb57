#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace glint {
namespace {

// The values of the empty input are published with XXH3 (its wiki, "test vectors"); our order of halves is the canonical one.
TEST(Hash, EmptyInputsHaveThePublishedValues) {
  EXPECT_EQ(Hash64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Hex(Hasher().Value()), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, DoesNotDependOnHowBytesAreCut) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  Hasher whole, cut;
  whole.AddBytes(bytes);
  for (size_t at = 0; at < bytes.size(); at += 13)
    cut.AddBytes(std::span(bytes).subspan(at, std::min<size_t>(13, bytes.size() - at)));
  EXPECT_EQ(whole.Value(), cut.Value());
}

TEST(Hash, ListsOfValuesAreToldApart) {
  const auto of = [](const std::vector<std::string_view>& texts) {
    Hasher hash;
    for (const auto text : texts) hash.AddText(text);
    return hash.Value();
  };
  EXPECT_FALSE(of({"ab", "c"}) == of({"a", "bc"}));
  EXPECT_FALSE(of({"ab", ""}) == of({"ab"}));
  Hasher number, bytes;
  number.AddNumber(0x0807060504030201u);
  std::vector<std::byte> eight(8);
  for (size_t i = 0; i < 8; ++i) eight[i] = static_cast<std::byte>(i + 1);
  bytes.AddBytes(eight);
  EXPECT_EQ(number.Value(), bytes.Value());  // little-endian everywhere
}

}  // namespace
}  // namespace glint
