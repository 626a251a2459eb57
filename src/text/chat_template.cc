#include "text/chat_template.h"

#include <fmt/core.h>

#include <array>

#include "text/known_templates.h"
#include "text/unicode.h"

namespace glint::text {
namespace {

// FNV-1a, 64 bits, beside the length: tells known templates apart. Not a defence: a source made to collide would merely be
// rendered as the known one, which is harmless.
uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// As Jinja reads it: line ends are \n, and one at the end of the source does not count.
std::string Normalised(std::string_view jinja) {
  std::string out;
  for (size_t i = 0; i < jinja.size(); ++i) {
    if (jinja[i] == '\r') {
      out += '\n';
      if (i + 1 < jinja.size() && jinja[i + 1] == '\n') ++i;
    } else {
      out += jinja[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

struct Known {
  std::string_view name;
  size_t bytes;  // of the normalised source
  uint64_t fnv1a;
  std::shared_ptr<const ChatTemplate> (*make)();
};

std::shared_ptr<const ChatTemplate> ExactGlmFlash() { return GlmFlashTemplate(true); }

const std::array<Known, 2>& KnownTemplates() {
  static constexpr std::array<Known, 2> kKnown = {{
      // zai-org/GLM-5.3-Flash, chat_template.jinja of revisions 690b7052 and eb9eb208: SHA-256
      // 0c4099f3382d6c92700dfb99725025360966fd73032f0ecf32377c0d9e6309c5.
      {"glm-5.3-flash", 10949, 0xe84cfb0aa9644b0du, ExactGlmFlash},
      {"stories", 440, 0x8b15d53a2fcf9db7u, StoriesTemplate},
  }};
  return kKnown;
}

std::string Names() {
  std::string names;
  for (const Known& known : KnownTemplates()) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

// Text that the released template and its patched copies have in common, and older GLM templates don't.
constexpr std::string_view kFamilyMarks[] = {"[gMASK]<sop>",    "Reasoning Effort: ", "clear_thinking",
                                             "<|observation|>", "<tool_response>",    "<arg_key>"};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::Recognise(std::string_view jinja) {
  if (jinja.empty()) {
    return Status(Code::kUnsupported, "the model file has no chat template; give the prompt as raw text");
  }
  const std::string source = Normalised(jinja);
  const uint64_t hash = Fnv1a(source);
  for (const Known& known : KnownTemplates()) {
    if (source.size() == known.bytes && hash == known.fnv1a) return known.make();
  }
  bool family = true;
  for (const std::string_view mark : kFamilyMarks) family = family && source.find(mark) != std::string::npos;
  if (family) return GlmFlashTemplate(false);
  return Status(
      Code::kUnsupported,
      fmt::format(
          "the model file's chat template ({} bytes, FNV-1a {:016x}) is not one that glint renders ({}); "
          "give the prompt as raw text",
          source.size(), hash, Names()));
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::ByName(std::string_view name) {
  for (const Known& known : KnownTemplates()) {
    if (known.name == name) return known.make();
  }
  return Status(Code::kBadInput,
                fmt::format("there is no chat template \"{}\"; there are {}", name, Names()));
}

std::string_view PythonStrip(std::string_view text) {
  const auto is_space = [](char32_t c) {
    return unicode::ClassOf(c) == unicode::Class::kSpace || (c >= 0x1c && c <= 0x1f);
  };
  size_t first = 0, last = 0;  // of the stripped text: its begin, and one behind its end
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const unicode::Unit unit = unicode::Read(text.substr(at));
    const bool space = unit.state == unicode::Unit::State::kValid && is_space(unit.code_point);
    if (!space && !inside) {
      first = at;
      inside = true;
    }
    at += unit.length;
    if (!space) last = at;
  }
  return text.substr(first, inside ? last - first : 0);
}

}  // namespace glint::text
