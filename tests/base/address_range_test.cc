#include "base/address_range.h"

#include <gtest/gtest.h>

#include <utility>

namespace glint {
namespace {

TEST(AddressRange, RangesAreApartAndMove) {
  auto a = AddressRange::Reserve(uint64_t{1} << 33), b = AddressRange::Reserve(1),
       none = AddressRange::Reserve(0);
  ASSERT_TRUE(a.ok() && b.ok() && none.ok());
  EXPECT_NE(a->data(), nullptr);
  EXPECT_EQ(a->size(), uint64_t{1} << 33);
  EXPECT_TRUE(b->data() < a->data() || b->data() >= a->data() + a->size());
  EXPECT_EQ(none->size(), 0u);
  const std::byte* const was = a->data();
  AddressRange moved = std::move(*a);
  EXPECT_EQ(moved.data(), was);
  EXPECT_EQ(a->data(), nullptr);
  *b = std::move(moved);
  EXPECT_EQ(b->data(), was);
}

TEST(AddressRange, MoreThanThereAreIsNoRoom) {
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX}) {
    const auto range = AddressRange::Reserve(bytes);
    ASSERT_FALSE(range.ok());
    EXPECT_EQ(range.status().code(), Code::kNoRoom);
    EXPECT_NE(range.status().message().find(std::to_string(bytes)), std::string::npos);
  }
}

}  // namespace
}  // namespace glint
