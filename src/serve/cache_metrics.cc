#include "serve/cache_metrics.h"

namespace glint::serve {

void WriteCache(const PrefixCacheStats& s, PrometheusText& page) {
  constexpr MetricType kCounter = MetricType::kCounter, kGauge = MetricType::kGauge;
  page.Family("glint_cache_lookups_total", kCounter,
              "Prompts that were looked up among the kept prefixes, by what came of it.");
  for (size_t i = 0; i < static_cast<size_t>(CacheMiss::kCount); ++i)
    page.Sample(s.finds[i], {{"result", Name(static_cast<CacheMiss>(i))}});
  page.One("glint_cache_disk_hits_total", kCounter, "Prefixes that were found on the disk.", s.found_on_disk);
  page.One("glint_cache_found_tokens_total", kCounter, "Tokens of prompts that kept prefixes held.",
           s.found_tokens);
  page.One("glint_cache_lost_tokens_total", kCounter,
           "Tokens that a kept history shared with a prompt beyond the last checkpoint: computed again.",
           s.lost_tokens);
  page.Family("glint_cache_keeps_total", kCounter, "Checkpoints by what became of them.");
  page.Sample(s.kept, {{"result", "kept"}}).Sample(s.kept_already, {{"result", "there_already"}});
  page.Sample(s.not_kept, {{"result", "not_kept"}});
  page.Family("glint_cache_evictions_total", kCounter, "Checkpoints that gave way to others.");
  page.Sample(s.evicted_ram, {{"from", "ram"}}).Sample(s.evicted_disk, {{"from", "disk"}});
  page.Family("glint_cache_checkpoints", kGauge, "Checkpoints that are kept.");
  page.Sample(s.entries_ram, {{"in", "ram"}}).Sample(s.entries_disk, {{"in", "disk"}});
  page.One("glint_cache_ram_bytes", kGauge, "Memory of kept prefixes.", s.ram_bytes);
  page.One("glint_cache_disk_bytes", kGauge, "Files of kept prefixes.", s.disk_bytes);
  page.One("glint_cache_written_bytes_total", kCounter, "Bytes written to the disk.", s.written_bytes);
  page.One("glint_cache_read_bytes_total", kCounter, "Bytes read from the disk.", s.read_bytes);
  page.One("glint_cache_writes_waiting", kGauge, "Checkpoints that are to go to the disk.", s.waiting_writes);
  page.One("glint_cache_writes_put_off_total", kCounter, "Writes that the limit of their rate put off.",
           s.writes_put_off);
  page.One("glint_cache_write_failures_total", kCounter, "Writes that failed.", s.write_failures);
  page.One("glint_cache_quarantined_total", kCounter, "Damaged files that were put aside.", s.quarantined);
}

}  // namespace glint::serve
