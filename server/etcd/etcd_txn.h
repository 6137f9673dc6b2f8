// Builds transactions of etcd, and reads their answers.
#ifndef SKRULL_SERVER_ETCD_ETCD_TXN_H_
#define SKRULL_SERVER_ETCD_ETCD_TXN_H_

#include <cstdint>
#include <string>

#include "etcd/rpc.pb.h"
#include "skrull/server/etcd/etcd_keys.h"

namespace skrull {

// One key.
inline etcdserverpb::RangeRequest GetKey(const std::string& key) {
  etcdserverpb::RangeRequest range;
  range.set_key(key);
  return range;
}

// The first `limit` keys, 0 = all, that start with `prefix`, which ends with a
// slash.
inline etcdserverpb::RangeRequest GetPrefix(const std::string& prefix,
                                            int64_t limit = 0) {
  etcdserverpb::RangeRequest range;
  range.set_key(prefix);
  range.set_range_end(PrefixEnd(prefix));
  range.set_limit(limit);
  return range;
}

// The operations of a transaction, which are done if all comparisons hold; the
// n-th operation gets the n-th answer. Without comparisons it is one consistent
// read or write.
//
// Example:
//   EtcdTxn txn;
//   txn.IfRevision(key, 0).Put(key, value);  // unless there is such a key
class EtcdTxn {
 public:
  // The key was last changed at `revision`; 0 = there is no such key.
  EtcdTxn& IfRevision(const std::string& key, int64_t revision) {
    etcdserverpb::Compare* const compare = request_.add_compare();
    compare->set_result(etcdserverpb::Compare::EQUAL);
    compare->set_target(etcdserverpb::Compare::MOD);
    compare->set_key(key);
    compare->set_mod_revision(revision);
    return *this;
  }
  EtcdTxn& IfExists(const std::string& key) {
    etcdserverpb::Compare* const compare = request_.add_compare();
    compare->set_result(etcdserverpb::Compare::GREATER);
    compare->set_target(etcdserverpb::Compare::CREATE);
    compare->set_key(key);
    compare->set_create_revision(0);
    return *this;
  }
  EtcdTxn& Get(const etcdserverpb::RangeRequest& range) {
    *request_.add_success()->mutable_request_range() = range;
    return *this;
  }
  EtcdTxn& Put(const std::string& key, const std::string& value) {
    etcdserverpb::PutRequest* const put =
        request_.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(value);
    return *this;
  }
  EtcdTxn& Delete(const std::string& key) {
    request_.add_success()->mutable_request_delete_range()->set_key(key);
    return *this;
  }
  // Keys in [begin, end).
  EtcdTxn& DeleteRange(const std::string& begin, const std::string& end) {
    etcdserverpb::DeleteRangeRequest* const range =
        request_.add_success()->mutable_request_delete_range();
    range->set_key(begin);
    range->set_range_end(end);
    return *this;
  }
  // `prefix` ends with a slash.
  EtcdTxn& DeletePrefix(const std::string& prefix) {
    return DeleteRange(prefix, PrefixEnd(prefix));
  }

  const etcdserverpb::TxnRequest& request() const { return request_; }

 private:
  etcdserverpb::TxnRequest request_;
};

// What the `index`-th operation read. REQUIRES: it was done.
inline const etcdserverpb::RangeResponse& RangeAt(
    const etcdserverpb::TxnResponse& response, int index) {
  return response.responses(index).response_range();
}

// The one key that a range of one key found; nullptr if there is none.
inline const etcdserverpb::KeyValue* KeyAt(
    const etcdserverpb::TxnResponse& response, int index) {
  const etcdserverpb::RangeResponse& range = RangeAt(response, index);
  return range.kvs_size() == 0 ? nullptr : &range.kvs(0);
}

// When it was last changed; 0 if there is none.
inline int64_t RevisionOf(const etcdserverpb::KeyValue* kv) {
  return kv == nullptr ? 0 : kv->mod_revision();
}

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_TXN_H_
