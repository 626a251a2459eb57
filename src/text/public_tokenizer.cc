// include/glint/tokenizer.h on top of this layer.
#include <fmt/core.h>

#include "base/no_room.h"
#include "glint/tokenizer.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace glint {
namespace {

bool Shown(const text::Tokenizer& tokenizer, int32_t id, bool show_special) {
  return show_special || tokenizer.Kind(id) != text::TokenKind::kControl;
}

}  // namespace

TextStream::TextStream(std::shared_ptr<const text::Tokenizer> tokenizer, bool show_special)
    : tokenizer_(std::move(tokenizer)), show_special_(show_special) {}

std::string TextStream::Push(int32_t id) {
  if (Shown(*tokenizer_, id, show_special_)) pending_ += tokenizer_->Bytes(id);
  std::string out;
  text::unicode::MoveWhole(pending_, out);
  return out;
}

std::string TextStream::Finish() {
  std::string out;
  text::unicode::MoveRest(pending_, out);
  return out;
}

Tokenizer::Tokenizer(std::shared_ptr<const text::Tokenizer> tokenizer,
                     std::shared_ptr<const text::ChatTemplate> chat)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  return tokenizer_->Encode(text, parse_special);
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool show_special) const try {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size()) {
      return Status(Code::kBadInput, fmt::format("id {} at index {} is not in [0, {})", ids[i], i, size()));
    }
    if (Shown(*tokenizer_, ids[i], show_special)) out += tokenizer_->Bytes(ids[i]);
  }
  return out;
} catch (...) {
  return NoRoomOrRethrow();
}

TextStream Tokenizer::Stream(bool show_special) const { return TextStream(tokenizer_, show_special); }

Result<std::vector<ChatPart>> Tokenizer::RenderChat(std::span<const Message> messages,
                                                    const ChatOptions& options) const try {
  if (chat_ == nullptr) {
    return Status(Code::kUnsupported,
                  "the model file's chat template is missing or not one that glint renders; give the prompt "
                  "as raw text");
  }
  return chat_->Render(messages, options);
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::vector<int32_t>> Tokenizer::EncodeChat(std::span<const Message> messages,
                                                   const ChatOptions& options) const try {
  const auto parts = RenderChat(messages, options);
  if (!parts.ok()) return parts.status();
  return tokenizer_->Encode(parts.value());
} catch (...) {
  return NoRoomOrRethrow();
}

int32_t Tokenizer::size() const { return tokenizer_->usable(); }
std::span<const int32_t> Tokenizer::stop_ids() const { return tokenizer_->data().stop_ids; }
bool Tokenizer::IsSpecial(int32_t id) const { return tokenizer_->Kind(id) == text::TokenKind::kControl; }
int32_t Tokenizer::Find(std::string_view token) const { return tokenizer_->FindAdded(token); }

}  // namespace glint
