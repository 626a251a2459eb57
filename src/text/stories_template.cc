// The template of models/stories (tokenizer_config.json there): no tools, no reasoning.
#include "text/known_templates.h"

namespace glint::text {
namespace {

class Stories final : public ChatTemplate {
 public:
  std::string_view name() const override { return "stories"; }

  // As its source does, this drops tools, tool calls and reasoning: the model has seen none.
  Result<std::vector<ChatPart>> Render(std::span<const Message> messages,
                                       const ChatOptions& options) const override {
    PartWriter out;
    out.Special("[gMASK]<sop>");
    for (const Message& message : messages) {
      switch (message.role) {
        case Role::kSystem:
          out.Special("<|system|>\n");
          break;
        case Role::kUser:
          out.Special("<|user|>\n");
          break;
        case Role::kAssistant:
          out.Special("<|assistant|>\n<think></think>\n");
          break;
        case Role::kTool:
          out.Special("<|observation|>\n");
          break;
      }
      out.Plain(message.role == Role::kAssistant ? PythonStrip(message.content)
                                                 : std::string_view(message.content));
    }
    if (options.add_generation_prompt) out.Special("<|assistant|>\n<think></think>\n");
    return out.Take();
  }
};

}  // namespace

std::shared_ptr<const ChatTemplate> StoriesTemplate() { return std::make_shared<Stories>(); }

}  // namespace glint::text
