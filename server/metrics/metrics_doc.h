// The text of docs/metrics.md, made from the metrics themselves.
#ifndef SKRULL_SERVER_METRICS_METRICS_DOC_H_
#define SKRULL_SERVER_METRICS_METRICS_DOC_H_

#include <string>

namespace skrull {

// Every metric a daemon can have, with type, labels, their values and meaning.
std::string MetricsMarkdown();

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_METRICS_DOC_H_
