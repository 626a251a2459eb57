// The embedded model under the template of GLM-5.3-Flash: its prompts leave <think> open, its tools are rendered, and its answers can
// be held to calls. What it says is as before.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gguf/copy.h"
#include "gguf/writer.h"
#include "model/glm_flash/gguf_source.h"

namespace glint::test {

// context: what it says it was made for; 0: as the embedded model.
inline void WriteThinkingStories(const std::string& path, uint32_t context = 0) {
  const std::string from = GLINT_SOURCE_DIR "/models/stories/stories.gguf";
  std::ifstream in(GLINT_TEST_DATA "/templates/glm_flash.jinja", std::ios::binary);
  std::ostringstream source;
  source << in.rdbuf();
  auto file = gguf::File::Open(from, model::BlockSizeOf);
  ASSERT_TRUE(file.ok()) << file.status().message();
  gguf::Writer writer;
  gguf::CopyKeys(*file, writer);
  writer.SetString("tokenizer.chat_template", source.str());
  if (context > 0) writer.SetU32("glm5next.context_length", context);
  for (const gguf::TensorInfo& tensor : file->tensors())
    ASSERT_TRUE(gguf::CopyTensor(*file, tensor, writer).ok());
  const Status written = writer.Write(path, std::vector<std::string>{from});
  ASSERT_TRUE(written.ok()) << written.message();
}

}  // namespace glint::test
