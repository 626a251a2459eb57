// Any JSON as a conversation, rendered by every template glint has; any text as the source of a template.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fuzz/conversation.h"
#include "fuzz/small_tokenizer.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  volatile bool known = glint::text::ChatTemplate::Recognise(text).ok();
  (void)known;
  const auto json = glint::ParseJson(text, "conversation");
  if (!json.ok()) return 0;
  const auto conversation = glint::fuzz::ConversationOf(*json);
  known = glint::text::ChatTemplate::Recognise(conversation.source).ok();
  for (const char* name : {"glm-5.3-flash", "stories"}) {
    const auto chat = glint::text::ChatTemplate::ByName(name);
    if (!chat.ok()) std::abort();
    const auto parts = (*chat)->Render(conversation.messages, conversation.options);
    if (!parts.ok()) continue;
    size_t bytes = 0;
    for (const auto& part : *parts) {
      bytes += part.text.size();
      // Parts are merged, and none is empty.
      if (part.text.empty()) std::abort();
      // What a person wrote does not become control.
      if (!part.special) {
        for (const int32_t id : glint::fuzz::SmallTokenizer().Encode(part.text, false)) {
          if (glint::fuzz::SmallTokenizer().Kind(id) != glint::text::TokenKind::kNormal) std::abort();
        }
      }
    }
    size_t back = 0;
    for (const int32_t id : glint::fuzz::SmallTokenizer().Encode(*parts))
      back += glint::fuzz::SmallTokenizer().Bytes(id).size();
    if (back != bytes) std::abort();
  }
  return 0;
}
