"""The forest's home on etcd: who may write it (leadership), its command log, and where its snapshots are.

PURE: codec (etcd's messages as bytes), keys (what stands under which key), core (elections and appends, step by step).
Driving them: client (gRPC), leadership, log, home (a writer's), following (a standby's).
"""
