#include "base/machine.h"

#include <gtest/gtest.h>

namespace glint {
namespace {

TEST(Machine, ReadsFieldsOfProcAndEtc) {
  EXPECT_EQ(FieldOf("processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9575F\nmodel name\t: other\n",
                    "model name", ':'),
            "AMD EPYC 9575F");
  EXPECT_EQ(FieldOf("NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", "PRETTY_NAME", '='),
            "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(FieldOf("MemTotal:       24684092 kB\n", "MemTotal", ':'), "24684092 kB");
  EXPECT_EQ(FieldOf("A: a: b\n", "A", ':'), "a: b");
  for (const char* none : {"", "\n", "A", "A:\n", "A: \t\n", "B: 1\n", ":\n: x"})
    EXPECT_EQ(FieldOf(none, "A", ':'), "") << none;
}

TEST(Machine, ThisOneHasCoresAndMemory) {
  const Machine m = ThisMachine();
  EXPECT_FALSE(m.processor.empty());
  EXPECT_GE(m.cores, 1);
  EXPECT_GT(m.memory_bytes, uint64_t{64} << 20);
  EXPECT_TRUE(m.kernel.starts_with("Linux ")) << m.kernel;
}

}  // namespace
}  // namespace glint
