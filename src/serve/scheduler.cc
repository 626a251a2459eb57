#include "serve/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/no_room.h"
#include "engine/batch.h"
#include "serve/pace.h"

namespace glint::serve {
namespace {

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// A job from Submit to its end. The queue's thread alone touches it, but for `cancelled`.
struct Entry {
  uint64_t id = 0;
  Job job;
  std::optional<Sampler> sampler;
  std::optional<Session> session;
  std::atomic<bool> cancelled = false;
  Clock::time_point submitted, started, decoding;
  size_t done = 0;                  // tokens of the prompt that the session has
  std::vector<int64_t> keep_at;     // positions of the prompt that are still to come, the next one last
  int32_t pending = -1;             // the next to append, once the prompt is done
  int64_t most = 0;                 // tokens of the answer
  uint64_t looked_after = 0;        // number of the last pass with a piece of its prompt
  std::vector<int32_t> piece = {};  // what the pass appends
  int32_t best = -1;
  JobResult result;

  bool decodes() const { return pending >= 0; }
  // Tokens up to where the prompt's next piece must end.
  size_t left() const {
    const size_t end =
        keep_at.empty() ? job.prompt.size() : static_cast<size_t>(keep_at.back());  // within the prompt
    return end - done;
  }
};
using Entries = std::list<std::unique_ptr<Entry>>;

// Whom the queue takes turns between.
struct Client {
  uint64_t tokens = 0;  // that were worked for them, from where the others stood when they came
  int waiting = 0, running = 0;
};

// Of a callback.
Status Describe(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const std::exception& e) {
    return {Code::kInternal, fmt::format("a callback threw: {}", e.what())};
  } catch (...) {
    return {Code::kInternal, "a callback threw"};
  }
}

}  // namespace

struct Scheduler::Impl {
  Impl(const Model& of, const SchedulerOptions& chosen)
      : model(of),
        options(chosen),
        most_rows(engine::MostBatchRows(of)),
        block(engine::GridBlock(of)),
        pace(Seconds(options.stall), block,
             options.most_prompt_rows > 0 ? std::min(options.most_prompt_rows, most_rows) : most_rows) {}

  const Model model;
  const SchedulerOptions options;
  const int64_t most_rows, block;

  mutable std::mutex mutex;  // of what follows, to the next comment
  std::condition_variable changed, idle;
  std::list<std::unique_ptr<Entry>> waiting;  // by age
  std::unordered_map<uint64_t, Entry*> alive;
  std::map<std::string, Client> clients;  // of the jobs alive
  uint64_t next_id = 1;
  uint64_t not_ended = 0;  // jobs whose last callback has not returned
  bool closing = false, ending = false;
  SchedulerStats counted;
  double mean_job_s = 1;

  // Of the thread.
  Entries running;  // by the time they left the queue
  Pace pace;
  uint64_t pass_number = 0;
  bool no_room = false;  // a session found none; until another has ended
  std::vector<float> logits;
  std::thread thread;

  Clock::time_point Now() const { return options.now ? options.now() : Clock::now(); }

  Admission Refuse(Admission::Verdict verdict, std::string reason) {
    const std::lock_guard lock(mutex);
    ++counted.refused;
    return {.verdict = verdict, .reason = std::move(reason)};
  }

  // Empty, or why the job can't run.
  std::string Flaw(const Job& job) const {
    const auto prompt = static_cast<int64_t>(job.prompt.size());
    if (prompt == 0) return "the prompt is empty";
    if (prompt >= options.context)
      return fmt::format("the prompt has {} tokens; the context of {} must hold the answer as well", prompt,
                         options.context);
    if (job.max_tokens < 0) return fmt::format("max_tokens is {}; it must be 0 or more", job.max_tokens);
    for (size_t i = 0; i < job.prompt.size(); ++i) {
      if (job.prompt[i] < 0 || job.prompt[i] >= model.vocab_size())
        return fmt::format("token {} of the prompt is id {}; ids go from 0 to {}", i, job.prompt[i],
                           model.vocab_size() - 1);
    }
    return job.session ? FlawOf(*job.session, job.prompt) : "";
  }

  // Empty, or why the session does not serve the prompt.
  static std::string FlawOf(const Session& session, const std::vector<int32_t>& prompt) {
    const auto have = session.tokens();
    if (have.size() >= prompt.size() || !std::equal(have.begin(), have.end(), prompt.begin()))
      return "the session does not hold a proper beginning of the prompt";
    if (session.capacity() <= static_cast<int64_t>(prompt.size()))
      return "the session has no room for the prompt and an answer";
    return "";
  }

  int64_t MostTokens(const Job& job) const {
    const int64_t capacity =
        job.session ? std::min(job.session->capacity(), options.context) : options.context;
    const int64_t room = std::max<int64_t>(capacity - static_cast<int64_t>(job.prompt.size()), 1);
    return job.max_tokens > 0 ? std::min(job.max_tokens, room) : room;
  }

  Admission Submit(Job job);
  void Run();
  void Loop();
  bool Ripe(Entry& entry, Clock::time_point now) const;
  void EndRipe();
  void Admit();
  Status Open(Entry& entry) const;
  Entries::iterator NextWaiting();
  bool Pass();
  void Charge(const Entry& entry, uint64_t tokens);
  void Took(Entry& entry, std::span<const float> row);
  void End(std::unique_ptr<Entry> entry, JobEnd how, Status status = {});
  // Calls it; false if it threw, which ends the job.
  template <class F>
  bool Call(Entry& entry, F&& f);

  // What became of running jobs in a pass; ended after it.
  struct Ending {
    Entry* entry;
    JobEnd how;
    Status status;
  };
  std::vector<Ending> endings;
};

Admission Scheduler::Impl::Submit(Job job) {
  using Verdict = Admission::Verdict;
  if (std::string flaw = Flaw(job); !flaw.empty()) return Refuse(Verdict::kBad, std::move(flaw));
  auto entry = std::make_unique<Entry>();
  if (!job.choose) {
    auto sampler = Sampler::Create(job.sampling, model.usable_vocab());
    if (!sampler.ok()) return Refuse(Verdict::kBad, sampler.status().message());
    sampler->Observe(job.prompt);
    entry->sampler.emplace(std::move(*sampler));
  }
  entry->most = MostTokens(job);
  entry->job = std::move(job);
  entry->submitted = Now();
  entry->result.prompt = entry->job.prompt.size();
  const std::lock_guard lock(mutex);
  if (closing) {
    ++counted.refused;
    return {.verdict = Verdict::kClosing, .reason = "the server is ending"};
  }
  const auto client = clients.find(entry->job.client);
  const int of_client = client == clients.end() ? 0 : client->second.waiting;
  const bool too_many = static_cast<int>(waiting.size()) >= options.queue;
  if (too_many || (options.queue_per_client > 0 && of_client >= options.queue_per_client)) {
    ++counted.refused;
    const double turns = static_cast<double>(waiting.size() + 1) / options.sessions;
    return {.verdict = Verdict::kFull,
            .reason = too_many ? fmt::format("{} requests wait already", waiting.size())
                               : fmt::format("{} requests of this client wait already", of_client),
            .retry_after_s = std::clamp(mean_job_s * turns, 1.0, 60.0)};
  }
  if (client == clients.end()) {
    // From where the others stand: who was away saves up nothing.
    const auto least = std::min_element(clients.begin(), clients.end(), [](const auto& a, const auto& b) {
      return a.second.tokens < b.second.tokens;
    });
    const uint64_t tokens = least == clients.end() ? 0 : least->second.tokens;
    clients.emplace(entry->job.client, Client{.tokens = tokens, .waiting = 1});
  } else {
    ++client->second.waiting;
  }
  entry->id = next_id++;
  alive.emplace(entry->id, entry.get());
  ++counted.taken;
  ++not_ended;
  const uint64_t id = entry->id;
  waiting.push_back(std::move(entry));
  changed.notify_one();
  return {.id = id};
}

template <class F>
bool Scheduler::Impl::Call(Entry& entry, F&& f) {
  try {
    f();
    return true;
  } catch (...) {
    endings.push_back({&entry, JobEnd::kFailed, Describe(std::current_exception())});
    return false;
  }
}

void Scheduler::Impl::Charge(const Entry& entry, uint64_t tokens) {
  const std::lock_guard lock(mutex);
  clients[entry.job.client].tokens += tokens;
}

void Scheduler::Impl::End(std::unique_ptr<Entry> entry, JobEnd how, Status status) {
  const Clock::time_point now = Now();
  JobResult& r = entry->result;
  r.end = how;
  r.status = std::move(status);
  const bool ran = entry->started != Clock::time_point();
  const bool decoded = entry->decoding != Clock::time_point();
  r.queue_s = Seconds((ran ? entry->started : now) - entry->submitted);
  if (ran) r.prefill_s = Seconds((decoded ? entry->decoding : now) - entry->started);
  if (decoded) r.decode_s = Seconds(now - entry->decoding);
  if (how != JobEnd::kFailed && entry->session) r.session.emplace(std::move(*entry->session));
  entry->session.reset();
  entry->job.session.reset();
  no_room = false;
  {
    const std::lock_guard lock(mutex);
    alive.erase(entry->id);
    const auto client = clients.find(entry->job.client);
    --(ran ? client->second.running : client->second.waiting);
    if (client->second.running == 0 && client->second.waiting == 0) clients.erase(client);
    ++counted.ended;
    if (how == JobEnd::kFailed) ++counted.failed;
    if (ran) mean_job_s += (Seconds(now - entry->started) - mean_job_s) / 8;
  }
  try {
    if (entry->job.on_end) entry->job.on_end(std::move(r));
  } catch (...) {  // nobody is left to be told
  }
  entry.reset();  // what its callbacks hold is gone when Drain returns
  const std::lock_guard lock(mutex);
  if (--not_ended == 0) idle.notify_all();
}

// Whether the job is to end now; how is in its result.
bool Scheduler::Impl::Ripe(Entry& entry, Clock::time_point now) const {
  if (entry.cancelled) {
    entry.result.end = JobEnd::kCancelled;
  } else if (entry.job.deadline && now >= *entry.job.deadline) {
    entry.result.end = JobEnd::kDeadline;
  } else {
    return false;
  }
  return true;
}

void Scheduler::Impl::EndRipe() {
  const Clock::time_point now = Now();
  Entries ripe;
  const auto move = [&](Entries& from) {
    for (auto it = from.begin(); it != from.end();) {
      const auto here = it++;
      if (Ripe(**here, now)) ripe.splice(ripe.end(), from, here);
    }
  };
  move(running);
  {
    const std::lock_guard lock(mutex);
    move(waiting);
  }
  for (auto& entry : ripe) {
    const JobEnd how = entry->result.end;
    End(std::move(entry), how);
  }
}

// Hold the mutex.
Entries::iterator Scheduler::Impl::NextWaiting() {
  const auto before = [this](const Entry& a, const Entry& b) {
    if (a.job.priority != b.job.priority) return a.job.priority > b.job.priority;
    const Client &of_a = clients[a.job.client], &of_b = clients[b.job.client];
    if (of_a.running != of_b.running) return of_a.running < of_b.running;
    return of_a.tokens < of_b.tokens;
  };
  return std::min_element(waiting.begin(), waiting.end(),
                          [&](const auto& a, const auto& b) { return before(*a, *b); });
}

// Gives a job its session.
Status Scheduler::Impl::Open(Entry& entry) const {
  Job& job = entry.job;
  const int64_t context = static_cast<int64_t>(job.prompt.size()) + entry.most;
  if (job.session) {
    entry.session.emplace(std::move(*job.session));
    job.session.reset();
  } else if (job.open) {
    Result<Opening> opening = Status(Code::kInternal, "no session");
    try {
      opening = job.open(context);
    } catch (...) {
      return Describe(std::current_exception());
    }
    if (!opening.ok()) return opening.status();
    if (opening->session) {
      if (std::string flaw = FlawOf(*opening->session, job.prompt); !flaw.empty())
        return {Code::kInternal, std::move(flaw)};
      entry.session.emplace(std::move(*opening->session));
      entry.most = std::min(entry.most, entry.session->capacity() - static_cast<int64_t>(job.prompt.size()));
    }
    entry.keep_at = std::move(opening->keep_at);
  }
  if (!entry.session) {
    auto session = Session::Create(model, {.context = context});
    if (!session.ok()) return session.status();
    entry.session.emplace(std::move(*session));
  }
  entry.done = static_cast<size_t>(entry.session->position());
  std::erase_if(entry.keep_at, [&](int64_t at) {
    return at <= static_cast<int64_t>(entry.done) || at >= static_cast<int64_t>(job.prompt.size());
  });
  std::sort(entry.keep_at.rbegin(), entry.keep_at.rend());
  return {};
}

void Scheduler::Impl::Admit() {
  while (!no_room && static_cast<int>(running.size()) < options.sessions) {
    Entries next;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty()) return;
      next.splice(next.end(), waiting, NextWaiting());
    }
    Entry& entry = *next.front();
    Status status = Open(entry);
    if (status.code() == Code::kNoRoom && !running.empty()) {
      no_room = true;
      const std::lock_guard lock(mutex);
      const auto older = [&](const auto& other) { return other->id > entry.id; };
      waiting.splice(std::find_if(waiting.begin(), waiting.end(), older), next);
      return;
    }
    if (!status.ok()) {
      End(std::move(next.front()), JobEnd::kFailed, std::move(status));
      continue;
    }
    entry.started = Now();
    entry.result.reused = entry.done;
    running.splice(running.end(), next);
    const std::lock_guard lock(mutex);
    Client& client = clients[entry.job.client];
    --client.waiting;
    ++client.running;
    counted.reused += entry.done;
  }
}

// The next token of a job is to be chosen. `row`: its logits, or empty if its best is known.
void Scheduler::Impl::Took(Entry& entry, std::span<const float> row) {
  if (Ripe(entry, Now())) {  // by a callback just now, or while the pass ran
    endings.push_back({&entry, entry.result.end, {}});
    return;
  }
  if (entry.decoding == Clock::time_point()) entry.decoding = Now();
  int32_t id = entry.best;
  if (!row.empty() || id < 0) {
    Result<int32_t> chosen = Status(Code::kInternal, "no choice");
    const bool called = Call(entry, [&] {
      if (entry.job.choose) {
        chosen = entry.job.choose(row);
      } else if (row.empty()) {
        chosen = Status(Code::kBadInput, "no id is left to choose: every logit is NaN or -infinity");
      } else {
        chosen = entry.sampler->Sample(row);
      }
    });
    if (!called) return;
    if (!chosen.ok()) {
      endings.push_back({&entry, JobEnd::kFailed, chosen.status()});
      return;
    }
    id = *chosen;
  }
  if (id < 0 || id >= model.vocab_size()) {
    endings.push_back({&entry,
                       JobEnd::kFailed,
                       {Code::kInternal, fmt::format("id {} was chosen of {}", id, model.vocab_size())}});
    return;
  }
  if (std::find(entry.job.stop_ids.begin(), entry.job.stop_ids.end(), id) != entry.job.stop_ids.end()) {
    entry.result.stop_id = id;
    endings.push_back({&entry, JobEnd::kStop, {}});
    return;
  }
  entry.pending = id;
  ++entry.result.generated;
  bool more = true;
  const auto give = [&] { more = !entry.job.on_token || entry.job.on_token(id); };
  if (!Call(entry, give)) return;
  if (!more) {
    endings.push_back({&entry, JobEnd::kTaken, {}});
  } else if (static_cast<int64_t>(entry.result.generated) >= entry.most) {
    endings.push_back({&entry, JobEnd::kLength, {}});
  }
}

// One pass over what is to be done; false if there is nothing.
bool Scheduler::Impl::Pass() {
  std::vector<Entry*> in_pass, prompts;
  for (const auto& entry : running) (entry->decodes() ? in_pass : prompts).push_back(entry.get());
  const size_t decodes = in_pass.size();
  // In turns: the client with the fewest tokens, and the prompt that waited longest.
  ++pass_number;
  {
    const std::lock_guard lock(mutex);
    std::stable_sort(prompts.begin(), prompts.end(), [this](const Entry* a, const Entry* b) {
      const uint64_t of_a = clients[a->job.client].tokens, of_b = clients[b->job.client].tokens;
      return of_a != of_b ? of_a < of_b : a->looked_after < b->looked_after;
    });
  }
  for (Entry* entry : in_pass) entry->piece.assign(1, entry->pending);
  int64_t rows = static_cast<int64_t>(decodes);
  const int64_t room = decodes == 0 ? most_rows : std::min(pace.rows(), most_rows - rows);
  int64_t prompt_rows = 0;
  for (Entry* entry : prompts) {
    const auto left = static_cast<int64_t>(entry->left());
    int64_t take = std::min(left, room - prompt_rows);
    if (entry->job.on_prompt_row) take = std::min(take, block);
    if (take < left) {  // cuts fall on the grid
      const int64_t beyond = (static_cast<int64_t>(entry->done) + take) % block;
      take = take > beyond ? take - beyond : prompt_rows == 0 ? take : 0;
    }
    if (take < 1) continue;
    const auto from = entry->job.prompt.begin() + static_cast<ptrdiff_t>(entry->done);
    entry->piece.assign(from, from + take);
    entry->looked_after = pass_number;
    prompt_rows += take;
    in_pass.push_back(entry);
  }
  rows += prompt_rows;
  if (in_pass.empty()) return false;

  // Logits only where somebody looks at them, and then in one piece.
  const auto chooses = [](const Entry& e) {
    return e.decodes() || e.done + e.piece.size() == e.job.prompt.size();
  };
  const auto all_rows = [](const Entry& e) { return !e.decodes() && e.job.on_prompt_row; };
  const auto rows_of = [&](const Entry& e) { return all_rows(e) ? e.piece.size() : chooses(e) ? 1u : 0u; };
  bool greedy = true;
  size_t wanted_rows = 0;
  for (const Entry* e : in_pass) {
    wanted_rows += rows_of(*e);
    greedy = greedy && !all_rows(*e) && (!chooses(*e) || (!e->job.choose && e->sampler->is_argmax()));
  }
  const auto vocab = static_cast<size_t>(model.vocab_size());
  if (!greedy && logits.size() < wanted_rows * vocab) logits.resize(wanted_rows * vocab);
  std::vector<engine::BatchWork> works;
  std::vector<std::span<float>> of_entry(in_pass.size());
  size_t row = 0;
  for (size_t i = 0; i < in_pass.size(); ++i) {
    Entry& e = *in_pass[i];
    engine::BatchWork work{.session = &*e.session, .tokens = e.piece};
    e.best = -1;
    if (const size_t of_this = rows_of(e); of_this > 0) {
      work.which = all_rows(e) ? LogitRows::kAll : LogitRows::kLast;
      if (greedy) {
        work.best = {&e.best, 1};
      } else {
        work.logits = of_entry[i] = std::span(logits).subspan(row * vocab, of_this * vocab);
        row += of_this;
      }
    }
    works.push_back(work);
  }

  const Clock::time_point begin = Now();
  engine::AppendTogether(model, works);
  const double seconds = Seconds(Now() - begin);
  if (prompt_rows > 0) pace.Saw(rows, seconds);
  {
    const std::lock_guard lock(mutex);
    ++counted.passes;
    if (works.size() > 1) ++counted.shared_passes;
    counted.prefilled += static_cast<uint64_t>(prompt_rows);
    counted.decoded += decodes;
    if (decodes > 0 && prompt_rows > 0) {
      counted.longest_stall_s = std::max(counted.longest_stall_s, seconds);
      counted.prompt_rows_beside_decodes =
          std::max(counted.prompt_rows_beside_decodes, static_cast<uint64_t>(prompt_rows));
    }
  }

  for (size_t i = 0; i < in_pass.size(); ++i) {
    Entry& e = *in_pass[i];
    if (!works[i].status.ok()) {
      endings.push_back({&e, JobEnd::kFailed, std::move(works[i].status)});
      continue;
    }
    Charge(e, e.piece.size());
    const bool choose = chooses(e);
    if (all_rows(e)) {
      const auto give = [&] {
        for (size_t r = 0; r < e.piece.size(); ++r)
          e.job.on_prompt_row(e.done + r, of_entry[i].subspan(r * vocab, vocab));
      };
      if (!Call(e, give)) continue;
      of_entry[i] = of_entry[i].last(vocab);
    }
    if (!e.decodes()) {
      e.done += e.piece.size();
      const auto tell = [&] {
        if (e.job.on_progress) e.job.on_progress(e.done, e.job.prompt.size());
      };
      if (!Call(e, tell)) continue;
      if (!e.keep_at.empty() && e.keep_at.back() == static_cast<int64_t>(e.done)) {
        while (!e.keep_at.empty() && e.keep_at.back() == static_cast<int64_t>(e.done)) e.keep_at.pop_back();
        const auto keep = [&] {
          if (e.job.on_keep) e.job.on_keep(*e.session);
        };
        if (!Call(e, keep)) continue;
      }
    }
    if (choose) Took(e, of_entry[i]);
  }
  return true;
}

void Scheduler::Impl::Loop() {
  EndRipe();
  Admit();
  endings.clear();
  try {
    Pass();
  } catch (...) {  // no memory for the lists of a pass: everybody's, so that nobody waits for ever
    const Status status = NoRoomOrRethrow();
    endings.clear();
    for (const auto& entry : running) endings.push_back({entry.get(), JobEnd::kFailed, status});
  }
  for (Ending& at : endings) {
    const auto found = std::find_if(running.begin(), running.end(),
                                    [&](const auto& entry) { return entry.get() == at.entry; });
    if (found == running.end()) continue;
    std::unique_ptr<Entry> entry = std::move(*found);
    running.erase(found);
    End(std::move(entry), at.how, std::move(at.status));
  }
  endings.clear();
}

void Scheduler::Impl::Run() {
  while (true) {
    {
      std::unique_lock lock(mutex);
      if (running.empty() && waiting.empty()) {
        if (ending) return;
        changed.wait(lock, [this] { return ending || !waiting.empty(); });
        if (waiting.empty()) continue;
      }
      if (ending) {
        for (const auto& [id, entry] : alive) entry->cancelled = true;
      }
    }
    Loop();
  }
}

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const Model& model,
                                                     const SchedulerOptions& options) try {
  const auto between = [](const char* what, int64_t value, int64_t least, int64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return {Code::kBadInput, fmt::format("{} is {}; it must be {} to {}", what, value, least, most)};
  };
  constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
  const int64_t most_context = model.context_length() > 0 ? model.context_length() : kAny;
  // Half of a pass at least is for prompts.
  for (const Status& status :
       {between("sessions", options.sessions, 1, std::max<int64_t>(engine::MostBatchRows(model) / 2, 1)),
        between("context", options.context, 2, most_context), between("queue", options.queue, 1, kAny),
        between("queue_per_client", options.queue_per_client, 0, kAny),
        between("stall (ms)", options.stall.count(), 1, kAny),
        between("most_prompt_rows", options.most_prompt_rows, 0, kAny)}) {
    if (!status.ok()) return status;
  }
  auto impl = std::make_unique<Impl>(model, options);
  Impl& made = *impl;
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::move(impl)));
  made.thread = std::thread([&made] { made.Run(); });
  return scheduler;
} catch (const std::system_error& error) {
  return Status(Code::kNoRoom, fmt::format("no thread for the scheduler: {}", error.what()));
} catch (...) {
  return NoRoomOrRethrow();
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->closing = impl_->ending = true;
    impl_->changed.notify_all();
  }
  if (impl_->thread.joinable()) impl_->thread.join();
}

Admission Scheduler::Submit(Job job) { return impl_->Submit(std::move(job)); }

void Scheduler::Cancel(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->alive.find(id);
  if (found != impl_->alive.end()) found->second->cancelled = true;
}

SchedulerStats Scheduler::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SchedulerStats stats = impl_->counted;
  stats.waiting = impl_->waiting.size();
  stats.running = impl_->alive.size() - impl_->waiting.size();
  return stats;
}

void Scheduler::Drain(Clock::time_point until) {
  std::unique_lock lock(impl_->mutex);
  impl_->closing = true;
  const auto empty = [this] { return impl_->not_ended == 0; };
  if (impl_->idle.wait_until(lock, until, empty)) return;
  for (const auto& [id, entry] : impl_->alive) entry->cancelled = true;
  impl_->idle.wait(lock, empty);
}

}  // namespace glint::serve
