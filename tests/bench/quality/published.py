"""The settings and the printed results of the Skrull paper (arXiv 2505.19609).

Its per-dataset bars of Fig. 3 and curves of Fig. 4 are printed as pictures
only; what it says of them in numbers is here.
"""

import collections

Setting = collections.namedtuple("Setting", "model dataset job batch_size")

DATASETS = ("wikipedia", "lmsyschat1m", "chatqa2")
MODELS = ("0.5B", "7B")
# The six bars of Fig. 3: 4 nodes of 8 GPUs; batch sizes over all DP ranks.
SETTINGS = (
    Setting("0.5B", "wikipedia", "qwen2.5-0.5b", 256),
    Setting("0.5B", "lmsyschat1m", "qwen2.5-0.5b", 256),
    Setting("0.5B", "chatqa2", "qwen2.5-0.5b", 256),
    Setting("7B", "wikipedia", "qwen2.5-7b", 256),
    Setting("7B", "lmsyschat1m", "qwen2.5-7b", 256),
    Setting("7B", "chatqa2", "qwen2.5-7b-chatqa2", 80),
)

# The case study: 0.5B on ChatQA2 with dp_size 1, cp_size 8.
CASE_JOB = "qwen2.5-0.5b"
CASE_DATASET = "chatqa2"
CASE_BATCH_SIZE = 64

# Fig. 4a's axes.
BATCH_SIZES = (8, 16, 24, 32, 40, 48, 54)
BUCKETS = (8192, 12288, 16384, 20480, 24576, 28672, 32768)

# Speed-ups over static CP (DeepSpeed), unless said otherwise.
MEAN_OF_MODEL = {"0.5B": 5.50, "7B": 2.03}
MEAN = 3.76
PEAK = 7.54
MEAN_OVER_SORTED = 3.45
PEAK_OVER_SORTED = 6.85
# Table 3 with roll-back; without it both run out of memory.
CASE_SPEED_UP = {"POLICY_ROUND_ROBIN": 1.17, "POLICY_SKRULL": 1.40}

# Table 1: percent of the sequences under so many tokens, and the longest.
LIMITS = (1024, 4096, 8192, 32768, 131072)
PERCENT_UNDER = {
    "wikipedia": (87.88, 99.34, 99.92, 99.99, 100.0),
    "lmsyschat1m": (87.12, 99.35, 99.87, 99.98, 99.99),
    "chatqa2": (21.92, 31.48, 40.43, 99.86, 100.0),
}
LONGEST = {"wikipedia": "78K", "lmsyschat1m": "1643K", "chatqa2": "99K"}

# Case study: least and most peak memory over the GPUs, GB, iterations 1 to 4.
PEAK_GB = {
    "POLICY_STATIC_CP": ((36, 36), (40, 40), (35, 35), (46, 46)),
    "POLICY_ROUND_ROBIN": ((10, 49), (29, 47), (14, 45), (46, 47)),
    "POLICY_SKRULL": ((21, 51), (37, 50), (32, 49), (45, 49)),
}
