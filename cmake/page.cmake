# The chat page: src/serve/page/'s style sheet and scripts joined into its HTML, as one header that src/serve/page.cc compiles in, with the
# SHA-256 of style and script in base64, as its Content-Security-Policy names them.
set(page_folder ${PROJECT_SOURCE_DIR}/src/serve/page)
set(page_header ${PROJECT_BINARY_DIR}/generated/serve/page_bytes.h)
# In this order: each file uses what stands in those before it.
set(page_scripts dom highlight markdown api conversation store answer turns dialogs app)

# base64 of a number of 64 hexadecimal digits: 12 bits (two characters) from every 3 digits, then the last digit and padding.
function(glint_base64_of_hex hex result)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text "")
  foreach(at RANGE 0 60 3)
    string(SUBSTRING ${hex} ${at} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING ${alphabet} ${high} 1 first)
    string(SUBSTRING ${alphabet} ${low} 1 second)
    string(APPEND text ${first}${second})
  endforeach()
  string(SUBSTRING ${hex} 63 1 digit)
  math(EXPR last "0x${digit} << 2")
  string(SUBSTRING ${alphabet} ${last} 1 first)
  set(${result} "${text}${first}=" PARENT_SCOPE)
endfunction()

set(page_sources ${page_folder}/page.html ${page_folder}/page.css)
set(page_script "'use strict';\n(() => {\n")
foreach(name IN LISTS page_scripts)
  file(READ ${page_folder}/${name}.js text)
  string(APPEND page_script "${text}\n")
  list(APPEND page_sources ${page_folder}/${name}.js)
endforeach()
string(APPEND page_script "})();\n")
file(READ ${page_folder}/page.css page_style)
file(READ ${page_folder}/page.html page_text)
string(REPLACE "@STYLE@" "${page_style}" page_text "${page_text}")
string(REPLACE "@SCRIPT@" "${page_script}" page_text "${page_text}")
string(SHA256 hex "${page_style}")
glint_base64_of_hex(${hex} page_style_hash)
string(SHA256 hex "${page_script}")
glint_base64_of_hex(${hex} page_script_hash)
string(SHA256 page_hash "${page_text}")
string(SUBSTRING ${page_hash} 0 32 page_hash)
# A change of any of them configures anew.
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_sources})
file(CONFIGURE OUTPUT ${page_header} @ONLY CONTENT [[
// Made by cmake/page.cmake.
#pragma once
#include <string_view>

namespace glint::serve {
inline constexpr std::string_view kPageStyleHash = "sha256-@page_style_hash@";
inline constexpr std::string_view kPageScriptHash = "sha256-@page_script_hash@";
inline constexpr std::string_view kPageTag = "@page_hash@";
// Compilers need not take literals beyond 65,536 characters; g++ and clang do, and clang says so.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
inline constexpr std::string_view kPageText = R"glint-page(@page_text@)glint-page";
#pragma GCC diagnostic pop
}  // namespace glint::serve
]])
