#include <cstdio>
#include <string_view>

#include "cli/version.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::puts(glint::cli::VersionText().c_str());
    return 0;
  }
  return 1;
}
