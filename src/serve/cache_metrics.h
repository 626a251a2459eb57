// The prefix cache's part of `/metrics`.
#pragma once
#include "serve/prefix_cache.h"
#include "serve/prometheus.h"

namespace glint::serve {

void WriteCache(const PrefixCacheStats& cache, PrometheusText& page);

}  // namespace glint::serve
