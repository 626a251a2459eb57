// An agent's loop over the service: each turn brings a tool's result, and what is prefilled is what is new and a little more; after a
// kill and a restart, and after an edit, too. GLINT_AGENT_TOKENS=30000 makes the history as long as those of real agents (minutes).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/snapshot.h"
#include "serve/prompts.h"
#include "serve/service.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/serve/service_test_support.h"
#include "tests/serve/thinking_stories.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"

namespace glint::serve {
namespace {

using test::TempDir;
using Ids = std::vector<int32_t>;

size_t HistoryTokens() {
  const std::string given = test::FromEnvironment("GLINT_AGENT_TOKENS");
  return given.empty() ? test::kAnySanitizer ? 500 : 1500 : static_cast<size_t>(std::stoull(given));
}

int64_t Interval() { return HistoryTokens() < 10000 ? 256 : 2048; }

const Model& Thinking() {
  static const Model model = [] {
    const std::string path = test::ScratchFolder() + "/agent.gguf";
    test::WriteThinkingStories(path, 65536);
    return test::MustOpen(path, {.device = "cpu", .threads = 2});
  }();
  return model;
}

std::unique_ptr<Service> Make(const std::string& directory) {
  ServiceOptions options;
  options.scheduler.context = static_cast<int64_t>(HistoryTokens()) + 4000;
  options.cache = PrefixCacheOptions{};
  options.cache->directory = directory;
  options.cache->interval = Interval();
  auto service = Service::Create(Thinking(), std::move(options));
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(*service);
}

const char* const kTool =
    R"({"type":"function","function":{"name":"look_up","parameters":{"type":"object","properties":)"
    R"({"name":{"type":"string","maxLength":12},"page":{"type":"integer","minimum":1,"maximum":9}},)"
    R"("required":["name","page"],"additionalProperties":false}}})";

std::string Words(size_t tokens, uint64_t seed) {
  static const char* const kWords[] = {"the",   "fox",  "ran",    "over",   "hill",  "and",
                                       "saw",   "a",    "little", "house",  "where", "mouse",
                                       "lived", "with", "her",    "friends"};
  std::string text;
  for (size_t i = 0; i < tokens; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    text += std::string(i > 0 ? " " : "") + kWords[seed >> 60];
  }
  return text;
}

// A conversation, and what a client knows of its tokens.
struct Agent {
  std::vector<Message> messages;
  uint64_t known = 0;  // tokens of the last prompt and its answer
  uint64_t turn = 0;

  static Agent New() {
    Agent agent;
    agent.messages.push_back({Role::kSystem, "You help. " + Words(100, 1)});
    agent.messages.push_back({Role::kUser, Words(HistoryTokens() - 200, 2)});
    return agent;
  }
  GenerationRequest Request(bool call) const {
    GenerationRequest request;
    request.messages = messages;
    request.chat.tools = {kTool};
    request.skip_reasoning = true;
    if (call) request.tool_choice.kind = ToolChoice::Kind::kRequired;
    request.sampler.temperature = 0;
    request.max_tokens = call ? 80 : 24;
    return request;
  }
  void Write(const std::string& path) const {
    std::ofstream out(path + ".part", std::ios::binary);
    out << known << '\x1e' << turn << '\x1e';
    for (const Message& m : messages) {
      out << static_cast<int>(m.role) << '\x1f' << m.content << '\x1f'
          << (m.tool_calls.empty() ? "" : m.tool_calls[0].name) << '\x1f'
          << (m.tool_calls.empty() ? "" : m.tool_calls[0].arguments) << '\x1e';
    }
    out.close();
    std::filesystem::rename(path + ".part", path);
  }
  static Agent Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    Agent agent;
    std::string record, field;
    std::getline(in, record, '\x1e');
    agent.known = std::stoull(record);
    std::getline(in, record, '\x1e');
    agent.turn = std::stoull(record);
    while (std::getline(in, record, '\x1e')) {
      std::vector<std::string> fields(1);
      for (const char c : record) {
        if (c == '\x1f')
          fields.emplace_back();
        else
          fields.back() += c;
      }
      Message m{static_cast<Role>(std::stoi(fields.at(0))), fields.at(1)};
      if (!fields.at(2).empty()) m.tool_calls.push_back({fields[2], fields.at(3), "call_1"});
      if (m.role == Role::kTool) m.tool_call_id = "call_1";
      agent.messages.push_back(std::move(m));
    }
    return agent;
  }
};

Said Ask(Service& service, const GenerationRequest& request) {
  std::promise<Collected> done;
  auto answered = done.get_future();
  Work work;
  work.request = request;
  work.names = service.NewNames("stories");
  work.writer = std::make_unique<Collector>(1, std::move(done));
  work.reply = std::make_shared<FakeReply>();
  const auto taken = service.Run(std::move(work));
  EXPECT_TRUE(std::holds_alternative<uint64_t>(taken)) << std::get<ApiError>(taken).message;
  if (!std::holds_alternative<uint64_t>(taken)) return {};
  const Collected all = answered.get();
  EXPECT_FALSE(all.error.has_value()) << all.error->message;
  return all.choices.at(0);
}

// One turn: asks, holds what was prefilled to its bound, and adds the answer and a tool's result (or a user's words).
Said Turn(Service& service, Agent& agent, const char* what, bool first = false) {
  const bool call = agent.turn % 3 != 2;
  const Said said = Ask(service, agent.Request(call));
  const Usage& usage = said.outcome.usage;
  const uint64_t fresh = usage.prompt - std::min(usage.prompt, agent.known),
                 prefilled = usage.prompt - usage.cached;
  std::printf("%-12s turn %2llu: prompt %6llu, new %5llu, cached %6llu, prefilled %5llu, answer %3llu\n",
              what, static_cast<unsigned long long>(agent.turn),
              static_cast<unsigned long long>(usage.prompt), static_cast<unsigned long long>(fresh),
              static_cast<unsigned long long>(usage.cached), static_cast<unsigned long long>(prefilled),
              static_cast<unsigned long long>(usage.completion));
  if (!first) {
    EXPECT_LE(prefilled, fresh + static_cast<uint64_t>(Interval()));
    // In truth the rest of a block of the grid, the answer's last token, and </think>.
    EXPECT_LE(prefilled, fresh + 18);
  }
  agent.known = usage.prompt + usage.completion;
  Message answer{Role::kAssistant, said.text};
  for (const ToolCall& c : said.calls) answer.tool_calls.push_back({c.name, c.arguments, "call_1"});
  EXPECT_EQ(answer.tool_calls.size(), call ? 1u : 0u) << said.text;
  agent.messages.push_back(answer);
  if (call) {
    agent.messages.push_back({Role::kTool, Words(60 + agent.turn, 100 + agent.turn), "", {}, "call_1"});
  } else {
    agent.messages.push_back({Role::kUser, Words(40, 200 + agent.turn)});
  }
  ++agent.turn;
  return said;
}

// All that is worth it is on the disk.
void WaitForDisk(Service& service) {
  EXPECT_TRUE(service.cache()->Flush(Clock::now() + std::chrono::minutes(5)));
}

TEST(AgentLoop, DISABLED_Server) {
  const std::string folder = test::Child::Task();
  Agent agent = Agent::New();
  auto service = Make(folder + "/cache");
  for (int turn = 0; turn < 12; ++turn) {
    Turn(*service, agent, "", turn == 0);
    WaitForDisk(*service);
    std::fflush(stdout);
    if (testing::Test::HasFailure()) return;
  }
  agent.Write(folder + "/agent");
  std::this_thread::sleep_for(std::chrono::hours(1));  // until it is killed
}

TEST(AgentLoop, PrefillsWhatIsNew) {
  TempDir dir;
  Agent agent;
  {
    test::Child server("AgentLoop.DISABLED_Server", dir.path());
    while (!std::filesystem::exists(dir.Path("agent"))) {
      ASSERT_TRUE(server.Alive()) << "a turn of the loop was wrong";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    server.Kill();
  }
  agent = Agent::Read(dir.Path("agent"));
  ASSERT_EQ(agent.turn, 12u);
  auto service = Make(dir.Path("cache"));
  EXPECT_EQ(service->cache()->stats().quarantined, 0u);
  for (int turn = 0; turn < 3; ++turn) Turn(*service, agent, "restarted");

  // The last turn of the user's is edited, twice, and the answer is that of a cold run over the same tokens.
  ASSERT_EQ(agent.messages.back().role, Role::kUser);
  for (uint64_t edit = 0; edit < 2; ++edit) {
    Agent edited = agent;
    edited.messages.back().content = Words(50, 300 + edit);
    edited.turn = 2;  // an answer in words
    const Ids prompt =
        std::get<std::vector<Ids>>(EncodePrompts(Thinking(), edited.Request(false), service->turns())).at(0);
    const Said said = Turn(*service, edited, "edited");
    auto session = Session::Create(Thinking(), {.context = std::ssize(prompt) + 24});
    ASSERT_TRUE(session.ok());
    int32_t best = -1;
    ASSERT_TRUE(session->AppendBest(prompt, &best).ok());
    Ids answer;
    const auto stops = Thinking().tokenizer().stop_ids();
    while (answer.size() < 24 && std::find(stops.begin(), stops.end(), best) == stops.end()) {
      answer.push_back(best);
      ASSERT_TRUE(session->AppendBest(std::span(&answer.back(), 1), &best).ok());
    }
    EXPECT_EQ(said.outcome.usage.completion, answer.size());
    TextStream stream = Thinking().tokenizer().Stream();
    std::string text;
    for (const int32_t id : answer) text += stream.Push(id);
    EXPECT_EQ(said.text, text + stream.Finish());
  }
  const auto stats = service->cache()->stats();
  std::printf(
      "%llu checkpoints in memory (%llu bytes of states, %llu of caches), %llu on disk (%llu bytes), %llu "
      "found there, "
      "%llu turns replayed\n",
      static_cast<unsigned long long>(stats.entries_ram),
      static_cast<unsigned long long>(stats.ram_state_bytes),
      static_cast<unsigned long long>(stats.ram_rows_bytes),
      static_cast<unsigned long long>(stats.entries_disk), static_cast<unsigned long long>(stats.disk_bytes),
      static_cast<unsigned long long>(stats.found_on_disk),
      static_cast<unsigned long long>(service->turns()->stats().replayed));
  EXPECT_GT(stats.found_on_disk, 0u);
}

}  // namespace
}  // namespace glint::serve
