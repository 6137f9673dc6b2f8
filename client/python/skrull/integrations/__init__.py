"""Adapters to the frameworks that people train with.

Each module needs its framework and ``skrull.torch``, and importing this package
imports none of them:

- ``transformers``: an attention implementation, and a ``Trainer``;
- ``data_parallel``: DDP and FSDP;
- ``deepspeed``: ZeRO;
- ``megatron``: Megatron-Core.
"""
