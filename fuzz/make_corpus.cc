// Writes the seeds that have no other source: fuzz/corpus/{tokenizer,chat_template,answer_parser,session,imatrix,base_file,recipe,json_schema,http_target}. Usage: make_corpus DIRECTORY
// (gguf and safetensors start from the files of tests/data/files.)
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "engine/base_file.h"
#include "fuzz/session_model.h"
#include "fuzz/small_tokenizer.h"
#include "gguf/writer.h"
#include "glint/session.h"
#include "model/glm_flash/recipe.h"
#include "model/imatrix.h"
#include "text/gguf_tokenizer.h"

namespace {

using namespace glint;
namespace fs = std::filesystem;

bool Check(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "make_corpus: %s\n", status.message().c_str());
  return status.ok();
}

void Write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string WithText(char mode, const std::string& text, const std::string& file) {
  std::string out = {mode, static_cast<char>(text.size()), static_cast<char>(text.size() >> 8)};
  return out + text + file;
}

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string TokenizerJson(const text::TokenizerData& data) {
  std::string vocab, added, merges;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.kinds[id] == text::TokenKind::kNormal) {
      vocab += (vocab.empty() ? "" : ",") + JsonText(data.tokens[id]) + ":" + std::to_string(id);
    } else {
      added += (added.empty() ? "{\"id\":" : ",{\"id\":") + std::to_string(id) +
               ",\"content\":" + JsonText(data.tokens[id]) +
               ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":" +
               (data.kinds[id] == text::TokenKind::kControl ? "true}" : "false}");
    }
  }
  for (const auto& [left, right] : data.merges)
    merges += (merges.empty() ? "[" : ",[") + JsonText(left) + "," + JsonText(right) + "]";
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return R"({"version":"1.0","added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" +
         JsonText(pattern) +
         R"(},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},)"
         R"("model":{"type":"BPE","dropout":null,"ignore_merges":true,"vocab":{)" +
         vocab + "},\"merges\":[" + merges + "]}}";
}

bool WriteTokenizers(const fs::path& to) {
  const auto data = fuzz::SmallTokenizerData();
  const std::string text = "the than aaaa <|user|> 1234 <think>\n caf\xc3\xa9 \xff\xe7\x8b";
  gguf::Writer writer;
  if (!Check(text::WriteGgufTokenizer(data, "", writer))) return false;
  const std::string file = (to / "tokenizer.gguf").string();
  fs::create_directories(to);
  if (!Check(writer.Write(file, {}))) return false;
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  fs::remove(file);
  Write(to / "tokenizer/gguf", WithText(0, text, bytes));
  Write(to / "tokenizer/json", WithText(1, text, TokenizerJson(data)));
  Write(to / "tokenizer/text", WithText(2, text, ""));
  return true;
}

void WriteConversations(const fs::path& to) {
  Write(
      to / "chat_template/plain",
      R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi <|user|>"},)"
      R"({"role":"assistant","content":"Hello","reasoning":"A greeting."},{"role":"user","content":" x "}],)"
      R"("effort":"low","generate":true,"clear":true})");
  Write(
      to / "chat_template/tools",
      R"({"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":"<think>hm</think>","tool_calls":[)"
      R"({"name":"w","arguments":"{\"city\": \"K\u00f6ln\", \"n\": [1, 2.50, null], \"o\": {\"a\": true}}","id":"1"},)"
      R"({"name":"v","arguments":"","id":"2"}]},{"role":"tool","content":"rain","tool_call_id":"2"},{"role":"tool","content":"sun","tool_call_id":"1"}],)"
      R"("tools":[{"json":"{\"type\":\"function\",\"function\":{\"name\":\"w\",\"strict\":true,\"parameters\":{\"x\":1e3}}}"},)"
      R"({"json":"{\"name\":\"v\",\"defer_loading\":true}"}],"template":"[gMASK]<sop>Reasoning Effort: "})");
}

// Marks as fuzz/answer_parser_fuzz.cc has them.
std::string Answer(char options, std::string tools, const std::string& stop, const std::string& text) {
  tools.resize((tools.size() + 15) / 16 * 16, ' ');
  std::string out = {options, static_cast<char>(tools.size() / 16), static_cast<char>(stop.size())};
  return out + tools + stop + text;
}

void WriteAnswers(const fs::path& to) {
  const std::string tools =
      R"({"name":"f","parameters":{"properties":{"s":{"type":"string"},"n":{"anyOf":[{"$ref":"#/$defs/i"},{"type":"null"}]}},)"
      R"("$defs":{"i":{"enum":[1,2]}}}})"
      "\n"
      R"({"type":"function","function":{"name":"now"}})";
  Write(to / "answer_parser/text",
        Answer(1, "", "END", "Hm. the\2Yes, th\xc3\xa9 \xf0\x9f\x98 EN or END.\x0e"));
  Write(to / "answer_parser/calls",
        Answer(1, tools, "\n\n",
               "Hm.\2One moment.\n\3f\5s\6\7the \"\\\1\2 007\x08\5n\6\7null\x08\4\n\3now\4\x0e"));
  Write(to / "answer_parser/repaired", Answer(2, tools, "", "\3fs\6\7a\x08n\6 2\x08\3f\5s\7b\4\3now\4\4"));
  Write(to / "answer_parser/malformed",
        Answer(2, tools, "x", "\3f\5s\6\7a\x08 b\4\3no no\4\3f\5s\6\7a\x08\5s\6\7b\x08\4\3\3{}\4\4"));
  Write(to / "answer_parser/in_reasoning",
        Answer(1, tools, "", "a\3now\4 b\3f\5n\6\0071\2\3now\4\3now\4\x0e"));
}

bool WriteSessions(const fs::path& to) {
  fs::create_directories(to / "session");
  const Model& model = fuzz::SessionModel();
  for (const int64_t tokens : {0, 3, 9}) {
    const bool mtp = tokens == 9;
    auto session = Session::Create(model, {.context = 64, .mtp = mtp});
    if (!Check(session.status())) return false;
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(7 * i + 1);
    std::vector<float> hidden(ids.size() * static_cast<size_t>(model.hidden_size()));
    if (!Check(session->AppendWithHidden(ids, LogitRows::kNone, {}, hidden))) return false;
    if (mtp) {
      const size_t rows = ids.size() - 1;
      if (!Check(session->AppendMtp(std::span(ids).subspan(1),
                                    std::span(hidden).first(rows * static_cast<size_t>(model.hidden_size())),
                                    {}, {}))) {
        return false;
      }
    }
    const std::string path = (to / "session" / std::to_string(tokens)).string();
    fs::remove(path);
    if (!Check(session->Save(path, tokens == 3 ? "{\"attached\":1}" : ""))) return false;
  }
  return true;
}

bool WriteImatrix(const fs::path& to) {
  fs::create_directories(to / "imatrix");
  model::ImportanceMatrix matrix;
  matrix.datasets = {"a.txt"};
  matrix.chunks = 2;
  matrix.chunk_tokens = 64;
  matrix.Add("blk.0.attn_q.weight", {.columns = 4, .matrices = 1, .mean = {1, 0, 2, 3}, .counts = {128}});
  matrix.Add("blk.1.ffn_up_exps.weight",
             {.columns = 2, .matrices = 3, .mean = {1, 2, 0, 0, 5, 0.5f}, .counts = {100, 0, 28}});
  fs::remove(to / "imatrix/two");
  return Check(matrix.Write((to / "imatrix/two").string(), {}));
}

// Of a row and of some.
bool WriteBases(const fs::path& to) {
  fs::create_directories(to / "base_file");
  for (const uint64_t vocab : {uint64_t{5}, uint64_t{300}}) {
    engine::BaseHeader header;
    header.model = header.tokenizer = header.text = "00112233445566778899aabbccddeeff";
    header.tokens = 20;
    header.vocab = vocab;
    header.windows = {.context = 8, .stride = 4, .first = 1};
    header.rows = vocab == 5 ? 3 : 7;
    const std::string path = (to / "base_file" / std::to_string(vocab)).string();
    fs::remove(path);
    auto writer = engine::BaseWriter::Create(path, header, {});
    if (!Check(writer.status())) return false;
    for (uint64_t row = 0; row < header.rows; ++row) {
      std::vector<float> logits(static_cast<size_t>(vocab));
      for (size_t i = 0; i < logits.size(); ++i)
        logits[i] = static_cast<float>((7 * i + 3 * row) % 11) - (i % 5 == 4 ? 40.0f : 0.0f);
      if (!Check(writer->Add(logits))) return false;
    }
    if (!Check(writer->Commit())) return false;
  }
  return true;
}

void WriteRecipes(const fs::path& to) {
  for (const model::ShippedRecipe& recipe : model::ShippedRecipes())
    Write(to / "recipe" / std::string(recipe.name), std::string(recipe.text));
  Write(to / "recipe/all_forms",
        "vectors = keep # norms\nrole:mtp & role:experts = q4_k\nblk.{0-2,45}.ffn_down_exps = q6_k\n"
        "*.ssm_? = f16\nfallback = q5_0, f16\n* = iq2_s\n");
  Write(to / "recipe/pattern", "bl?*.w\nblk.12.ffn.w");
}

void WriteSchemas(const fs::path& to) {
  const std::string choices =
      "\x40\x00" + std::string("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-=");
  const auto write = [&](const char* name, const char* schema) {
    Write(to / "json_schema" / name, std::string(1, choices[0]) + '\0' + choices.substr(1, 64) + schema);
  };
  write(
      "object",
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":120},"b":{"type":"string","minLength":1,"maxLength":3}},)"
      R"("required":["b"],"additionalProperties":{"type":["number","null"]}})");
  write(
      "recursive",
      R"({"$defs":{"n":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"array","prefixItems":[{"const":1}],"items":{"$ref":"#/$defs/n"},"maxItems":4}]}},"$ref":"#/$defs/n"})");
  write("pattern",
        R"x({"type":"string","pattern":"^(?:[a-z\\d]{2,4}|\u00e9+)?x$","allOf":[{"maxLength":9}]})x");
  write("one_of", R"({"oneOf":[{"enum":["a",1,null]},{"type":"object"},{"type":"string","format":"date"}]})");
}

void WriteTargets(const fs::path& to) {
  Write(to / "http_target/plain", "/v1/chat/completions");
  Write(to / "http_target/escaped", "//sessions/a%20b%c3%A9/./?q=%e4%b8%ad+x&&=&k#end");
  Write(to / "http_target/absolute", "https://host:80?x=%00/../%2f");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: make_corpus DIRECTORY\n");
    return 2;
  }
  WriteConversations(argv[1]);
  WriteAnswers(argv[1]);
  WriteTargets(argv[1]);
  WriteRecipes(argv[1]);
  WriteSchemas(argv[1]);
  const bool written =
      WriteTokenizers(argv[1]) && WriteSessions(argv[1]) && WriteImatrix(argv[1]) && WriteBases(argv[1]);
  return written ? 0 : 1;
}
