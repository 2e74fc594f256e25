"""Every bound, default and timeout of braidlog, the unit last in the name. Nothing else sets a number."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# What a caller may send.
NAME_CHARS_MAX: Final = 249  # so that every log and fork is also a legal Kafka topic name
RECORD_BYTES_MAX: Final = 16 * MIB  # value, key and headers together
BATCH_RECORDS_MAX: Final = 1_000_000
BATCH_BYTES_MAX: Final = 64 * MIB
RECORD_HEADERS_MAX: Final = 256
HEADER_NAME_CHARS_MAX: Final = 1024
LABELS_MAX: Final = 64
LABEL_CHARS_MAX: Final = 1024
OWNER_CHARS_MAX: Final = 256
WRITER_CHARS_MAX: Final = 256
WRITERS_PER_LOG_MAX: Final = 100_000
REQUEST_ID_BYTES: Final = 16  # 8 of the client, 8 of a number that ascends
CLIENT_ID_BYTES: Final = 8
CONSUMER_CHARS_MAX: Final = 256
CONSUMERS_PER_LOG_MAX: Final = 10_000

# Who may do what.
TOKEN_BYTES: Final = 32  # of chance in a token
TOKEN_CHARS_MAX: Final = 256  # that are looked at when one is shown
TOKEN_SCOPES_MAX: Final = 256  # scopes of one token
TOKEN_SCOPE_CHARS_MAX: Final = 300
TOKENS_MAX: Final = 10_000
TOKEN_CHECK_S: Final = 0.4  # how often a server looks whether the tokens of its connections are still good
TOKEN_PAUSE_S: Final = 0.05  # before a wrong token is refused; it doubles with each one from the same address
TOKEN_PAUSE_MAX_S: Final = 3.0
TOKEN_PAUSES_KEPT_S: Final = 120.0  # without a wrong one, and the first pause is the first again
TOKEN_PAUSES_KEPT_ADDRESSES: Final = 10_000  # addresses that pauses are remembered for
HOLD_LEASE_MAX_S: Final = 3600.0  # of a promotable fork, by somebody who may not decide for its parent
TLS_HANDSHAKE_S: Final = 5.0

# What the forest remembers.
SEGMENT_RUNS_MAX: Final = 65_536  # runs in one segment of an index before a new one is begun
TOUR_DEPTH_MIN: Final = 64  # trees deeper than this keep a balanced tour, shallower ones walk their path
OUTCOMES_KEPT_MAX: Final = 4_096  # answered requests that can still be resolved, oldest forgotten first
YOUNG_COMMANDS: Final = 4_096  # applied since a request was first sent, at most, for it to be new if it is not recalled
DECIDED_OUTCOMES_KEPT_MAX: Final = 131_072  # the same of appends whose position a hold had withheld
CLIENTS_KEPT_MAX: Final = 10_000  # clients whose outcomes are kept until they settle them, the longest silent go first
CLIENT_OUTCOMES_KEPT_MAX: Final = 8_192  # of one client, beyond those above; the lowest numbers go first
TOMBSTONES_KEPT_MAX: Final = 16_384  # ended logs whose end can still be told

# Promotable forks.
LEASE_DEFAULT_S: Final = 300.0

# The command log.
INLINE_BYTES_MAX: Final = 256 * KIB  # larger batches go straight into an object
FRAME_BYTES_MAX: Final = 64 * MIB  # one group commit
FRAME_TARGET_BYTES: Final = 4 * MIB  # a group commit stops gathering here
LOG_GROWTH_BYTES: Final = 1 * MIB  # zeros written ahead, so that a commit overwrites and never extends
CHECKPOINT_LOG_BYTES: Final = 4 * MIB  # command log since the last snapshot before the next one is due
CHECKPOINT_LOG_PER_STATE_BYTES: Final = 16  # the same for each byte of the state: one costs as much as so many
CHECKPOINT_COMMANDS: Final = 20_000  # the same in commands: replaying more would be felt on open

# What clients write to the store themselves.
UPLOAD_TTL_S: Final = 3600.0
UPLOAD_TTL_MAX_S: Final = 7 * 24 * 3600.0
UPLOADS_MAX: Final = 65_536  # that live
PUBLISH_OBJECTS_MAX: Final = 16_384  # in one publication
PUBLISH_BLOCKS_MAX: Final = 131_072  # the same: it has to fit into a frame of the command log, at about 64 bytes each
PUBLISH_UPLOADS_MAX: Final = 16_384  # that end with it
UPLOAD_BLOCK_BYTES: Final = 2 * MIB  # about so many bytes of records make a block
UPLOAD_BLOCK_BYTES_MAX: Final = 64 * MIB  # that can be asked for
UPLOADED_BLOCK_BYTES_MAX: Final = 128 * MIB  # of a block with all that belongs to it
UPLOAD_OBJECT_BYTES: Final = 64 * MIB  # and so many an object
UPLOAD_OBJECT_BYTES_MAX: Final = 1024 * MIB  # that can be asked for: for an object store a writer keeps it in memory
UPLOAD_NAME_ATTEMPTS: Final = 16  # to find a name that is free; one of 32 random bits is, nearly always
SWEEP_S: Final = 60.0  # at least, between two searches for objects that ended uploads left
SWEEP_IDLE_S: Final = 3600.0  # the same while none ended: a writer that is late may have stored something

# Packing, compaction, collection.
PACK_BYTES: Final = 4 * MIB  # inline bytes that make a flush due
PACK_AGE_S: Final = 60.0  # inline bytes older than this make a flush due
UNPACKED_BYTES_MAX: Final = 64 * MIB  # appends wait for the packer above this
OBJECT_BYTES_MAX: Final = 16 * MIB  # queued large batches that share one object
SECOND_OBJECT_BYTES_MIN: Final = 768 * KIB  # queued while one object is being stored, for another to be begun beside it
SECOND_OBJECT_BYTES_MAX: Final = 4 * MIB  # the same while much is under way
STORERS: Final = 4  # objects that are stored side by side
COMPACT_OBJECT_BYTES_MAX: Final = 8 * MIB  # objects below this are small
COMPACT_OBJECTS_MIN: Final = 16  # so many small ones make a compaction worth while
COMPACT_BYTES_MAX: Final = 64 * MIB  # rewritten by one compaction
COMPACT_IDLE_S: Final = 2.0  # compaction waits until nothing was committed for so long
GRACE_S: Final = 60.0  # between condemning an object and deleting it
KEEPER_PERIOD_S: Final = 1.0  # how often the background work looks around

# Object stores elsewhere.
STORE_CALL_TIMEOUT_S: Final = 30.0  # that a call may take, with all that is tried again; the `timeout` of a URL sets it
STORE_CALL_TIMEOUT_MIN_S: Final = 0.1
STORE_CALL_TIMEOUT_MAX_S: Final = 600.0
STORE_CALL_ATTEMPTS_MIN: Final = 3  # that fit into it, if none of them is answered
STORE_CONNECT_TIMEOUT_S: Final = 3.0
STORE_RETRY_S: Final = 0.05  # before the second attempt, at most; it doubles from there
STORE_RETRY_MAX_S: Final = 2.0
STORE_READERS: Final = 16  # blocks that are fetched side by side
STORE_READ_ASIDE_BYTES_MAX: Final = 32 * MIB  # that are fetched so at once: a part of the cache that takes them in
STORE_COMPARE_BYTES: Final = 8 * MIB  # read back at once, to find out whether what is there is what was put
STORE_REASON_CHARS_MAX: Final = 300  # of what a store answers, in an error
PROBE_CONTENDERS: Final = 4  # that create one key at the same time
PROBE_ROUNDS: Final = 3
PROBE_START_CONTENDERS: Final = 2  # the same when a service starts, which some stores keep waiting for seconds if more

# Memory and waiting.
CACHE_BYTES: Final = 128 * MIB
READERS: Final = 4  # blocks that a large read fetches side by side
READ_ASIDE_BYTES: Final = 2 * MIB  # what makes a read large
SUBMIT_OUTSTANDING_BYTES_MAX: Final = 64 * MIB
SUBSCRIBE_FETCH_BYTES: Final = 1 * MIB
SUBSCRIBE_FETCH_RECORDS: Final = 4096
COMMIT_TIMEOUT_S: Final = 60.0  # how long an append waits for storage before it reports an unknown outcome
AIO_THREADS_MAX: Final = 8  # of one awaited braid, for what touches the disk
READ_ONLY_POLL_S: Final = 0.01  # how often a read-only process looks for what the writer has synced
OBJECT_GONE_RETRIES: Final = 8  # reads plan again this often when an object was compacted away under them

# Reading in bulk, and Spark.
BULK_BATCH_ROWS: Final = 10_000  # of a record batch: smaller ones are joined, larger ones are cut
BULK_BATCH_BYTES: Final = 2 * MIB  # the same in bytes; batches of 40 MiB took Spark twice as long for each byte
BULK_WINDOW_BYTES: Final = 16 * MIB  # fetched side by side from a store elsewhere, and as much again ahead
BULK_FETCH_BYTES: Final = 4 * MIB  # of neighbouring blocks in one request
BULK_GAP_BYTES: Final = 64 * KIB  # fetched for nothing rather than asking twice
BULK_MAPPED_OBJECTS: Final = 64  # kept open by a reader of a folder
BULK_KEPT_BLOCKS: Final = 16  # the last ones, as forks come back to them
SPARK_PLAN_RECORDS: Final = 250_000  # that are planned at once
SPARK_RECORD_BYTES: Final = 26  # that a stored record takes beside its key, value and headers
SPARK_PARTITION_BYTES_MIN: Final = 32 * MIB  # that make a task worth while: starting one takes as long as reading 8 MiB
SPARK_PARTITION_BYTES_MAX: Final = 128 * MIB  # that a task reads, which then takes below a second
SPARK_TASKS_PER_CORE: Final = 2  # of the driver, where that is in between
SPARK_VALUE_BYTES_MAX: Final = 256 * MIB  # of a value that is an Arrow stream, when it is not compressed any more
SPARK_VALUE_ROWS_MAX: Final = 16 * 1024 * 1024  # of such a value
SPARK_IDLE_WAIT_S: Final = 0.1  # for something new, before a stream tells Spark that there is nothing
SPARK_LOOK_S: Final = 1.0  # between two looks for new logs of a pattern, while its logs get nothing
SPARK_RETRY_S: Final = 30.0  # that a stream waits for a directory it cannot follow now, or one that is behind

# Processes that serve.
SETTING_CHARS_MAX: Final = 4096
PROCESS_START_TIMEOUT_S: Final = 60.0  # for a process of a cluster to say that it listens
PROCESS_STOP_TIMEOUT_S: Final = 20.0  # for it to end by itself, before it is killed; longer than it may take to answer
PROCESS_POLL_S: Final = 0.005
CLUSTER_BROKERS_DEFAULT: Final = 3
CLUSTER_BROKERS_MAX: Final = 64
CLUSTER_METADATA_PROCESSES_MAX: Final = 9

# Being looked at.
DURATION_BUCKETS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
COMMIT_BUCKETS_COMMANDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
SLOW_REQUEST_S: Final = 1.0  # what takes longer is logged
LOOP_LAG_PERIOD_S: Final = 0.5  # how often a server's loop is asked how late it is
LOG_VALUE_CHARS_MAX: Final = 1024  # of one field of a line that is logged
STATUS_ROWS_MAX: Final = 100  # of each table in a report
STATUS_TEXT_CHARS_MAX: Final = 256  # of each text in it
STATUS_FORKS_EXAMINED_MAX: Final = 2_000  # undecided forks that one look at a forest takes in, the oldest first
STATUS_CONSUMERS_EXAMINED_MAX: Final = 4_000  # the same of consumers, and of the logs that they are of
HTTP_CONNECTIONS_MAX: Final = 64
HTTP_HEADER_BYTES_MAX: Final = 8 * KIB
HTTP_IGNORED_BYTES_MAX: Final = 1 * MIB  # that a peer may still send after its request
HTTP_REQUEST_S: Final = 5.0  # for a request to arrive
HTTP_LINGER_S: Final = 2.0  # for the answer to be read
TOP_INTERVAL_S: Final = 2.0  # between two looks of `braid top`

# Several metadata processes.
STANDBY_PATIENCE_S: Final = 1.0  # a standby waits for what its caller has seen already
STANDBY_TIMEOUT_S: Final = 2.0  # then the leader is asked what a standby did not answer
STANDBY_SILENCE_S: Final = 3.0  # without a sign of the log, before a standby answers nothing any more
STANDBY_PAUSE_S: Final = 0.2  # before one that cannot follow tries again
LEADER_LOOK_S: Final = 0.1  # how often a leader looks whether it still is one

# Several metadata groups.
GROUP_VERSIONS_KEPT: Final = 4096  # of all groups together, that somebody may wait to see changed

# A server's memory.
MEMORY_KEPT_BYTES_MAX: Final = 256 * MIB  # freed, and kept for the next
MEMORY_MAPPED_BYTES_MIN: Final = 32 * MIB  # a piece that is given back as soon as it is freed
MEMORY_GROWTH_BYTES: Final = 8 * MIB  # asked for at once

# The wire.
FAILED_REQUESTS_TOLD_MAX: Final = 20  # that a server logs of those in FAILED_REQUESTS_S; the others are counted
FAILED_REQUESTS_S: Final = 1.0
BOUND_REQUESTS_TOLD_MAX: Final = 3  # in what is logged of a slow binding of many
WIRE_HELLO_BYTES_MAX: Final = 64 * KIB  # of a frame before the peer has said who it is
WIRE_FRAME_BYTES_MAX: Final = 80 * MIB  # the largest batch, with what belongs to it
WIRE_SMALL_FRAME_BYTES_MAX: Final = 512 * KIB  # of one that is received at once, however much is under way
WIRE_BODY_BYTES_MAX: Final = WIRE_FRAME_BYTES_MAX - 64 * KIB  # of it, without what says what it is
RECEIVE_BYTES: Final = 256 * KIB  # taken from a connection at once, but for large frames
SEND_BYTES: Final = 256 * KIB  # given to a connection at once, before it is the others' turn
WIRE_BATCH_BYTES_MAX: Final = 1 * MIB  # of one as msgpack, which is looked at record by record
WIRE_BLOCK_BYTES_MIN: Final = 64 * KIB  # larger batches travel as Arrow blocks
WIRE_READ_BYTES_MAX: Final = 4 * MIB  # what one answer to a read holds, or a single record
WIRE_READ_RECORDS_MAX: Final = 100_000  # the same in records
WIRE_READ_RUNS_MAX: Final = 4096  # the same in runs of records that stand together
WIRE_PLAN_RUNS_MAX: Final = 16_384  # of the range that one answer plans; the asker goes on behind it
WIRE_PLAN_BYTES_MAX: Final = 4 * MIB  # that are in no object yet and ride in such an answer
WIRE_PLAN_RECORD_BYTES: Final = 32  # that each of them counts for besides
PLAN_JOINED_BYTES_MAX: Final = 64 * KIB  # of neighbours that are in no object yet and become one message
PLAN_JOINED_RECORDS_MAX: Final = 1024  # the same in records
READ_HERE_RUNS_MAX: Final = 256  # of an answer that is assembled on the loop's thread
CONNECTION_IN_FLIGHT_BYTES_MAX: Final = 96 * MIB  # of requests of one connection that are not answered yet
CONNECTION_REQUESTS_MAX: Final = 65_536  # the same in requests
CONNECTION_SUBSCRIPTIONS_MAX: Final = 10_000
BROKER_SUBSCRIPTIONS_MAX: Final = 1_000_000  # the same of a broker at the metadata: it waits for all its clients
CONNECTION_READ_REQUESTS_MAX: Final = 16  # that have large answers and are carried out side by side; others wait
CONNECTION_UNSENT_BYTES_MAX: Final = 8 * MIB  # answers that a peer does not read; no more is read from it then
CONNECTION_STALLED_S: Final = 30.0  # that a peer may leave its greeting or a frame unfinished without a byte of it
SERVER_IN_FLIGHT_BYTES_MAX: Final = (
    512 * MIB
)  # of all connections; beyond it appends are refused, and large frames wait
SERVER_ANSWERS_BYTES_MAX: Final = 256 * MIB  # large answers to all connections, begun or unsent; one each beyond it
SERVER_ANSWERS_LOOK_S: Final = 0.05  # how often it is looked whether some were sent, while others wait for that
SERVER_FILES_KEPT: Final = 128  # that a process may open, but not for connections; half of them, if it may open few
SUBSCRIBE_CREDIT_BYTES: Final = 4 * MIB  # that a subscriber lets be pushed ahead of what it took
SUBSCRIBE_CREDIT_BYTES_MAX: Final = 64 * MIB  # that a server lets it
SETTLE_REQUESTS: Final = 1024  # a client's requests between two words to the forest that it has their answers
FETCHERS: Final = 4  # threads of a server that fetch from the store
VOUCHING_THREADS: Final = 4  # the same, that look whether published objects are there
QUICK_COMMIT_S: Final = 0.002  # a commit that takes longer is not made on the loop's thread again
COMMIT_ASIDE_S: Final = 0.25  # for so long
SHUTDOWN_GRACE_S: Final = 10.0  # for a server to answer what it was asked before it closes
SHUTDOWN_GRACE_MAX_S: Final = 3600.0  # that can be set
SHUTDOWN_POLL_S: Final = 0.01
CONNECT_TIMEOUT_S: Final = 5.0
CALL_TIMEOUT_S: Final = 60.0  # that a call on a service may take, with everything that is tried again
PING_S: Final = 1.5  # of silence, before a server that owes an answer is asked whether it is there
SILENCE_S: Final = 5.0  # after which it is given up, and another one asked
RECONNECT_S: Final = 0.02  # before the second attempt to connect; it doubles from there
RECONNECT_MAX_S: Final = 1.0
RECONNECT_TOLD_S: Final = 10.0  # how often what fails in the same way again and again is told
LINGER_BYTES_MAX: Final = 512 * KIB  # of submitted records that travel together
LINGER_RECORDS_MAX: Final = 65_536  # the same in records, for those without bytes
LINGER_BATCHES_UNDER_WAY: Final = 4  # of one log, before what is submitted without a linger waits to be gathered
POLL_ANSWER_S: Final = 2.0  # for a server that is there to answer a poll, however short that is
KNOCK_S: Final = 0.5  # for the holder of a directory to answer, before its lock is tried again

# Brokers.
FLUSH_BYTES_MAX: Final = 8 * MIB  # of appends that a broker stores and binds together
FLUSHES_UNDER_WAY: Final = 3  # of a broker, stored side by side and bound one after the other
METADATA_TIMEOUT_S: Final = 40.0  # for the metadata to answer a broker: before the clients of that give up
LINK_TICK_S: Final = 0.25
BROKER_LEASE_S: Final = 10.0  # a broker that is gone for so long loses its epoch, and what it stored and never bound
FORK_BYTES_PER_S: Final = 64 * MIB  # that all forks of one tree together may append through a server
FORK_BURST_BYTES: Final = 64 * MIB  # more than that at once
BROKER_HOST_CHARS_MAX: Final = 64  # of its machine's name, in the name that it has unless given one
FORK_PAUSE_MAX_S: Final = 1.25  # that a connection is not listened to for it: less than PING_S, or it seems to be dead
FORK_ROOTS_KEPT_LOGS: Final = 10_000  # whose forks were written lately
FORK_WRITERS_KEPT: Final = 10_000  # who wrote forks lately, of all trees together
KIN_KEPT_LOGS: Final = 100_000  # whose trees a broker remembers
ROUTE_S: Final = 30.0  # before a client asks again which broker serves a log
ROUTE_ANSWER_S: Final = 2.0  # for that answer; half of what the caller has, if that is less
ROUTE_RETRY_S: Final = 2.0  # the same, when that broker could not be reached
ROUTES_KEPT_LOGS: Final = 100_000

# Agents: validators, proposals, the audit log.
VALIDATOR_TIMEOUT_S: Final = 60.0  # for one validator, unless told otherwise
VALIDATOR_TIMEOUT_MAX_S: Final = 3600.0
VALIDATOR_MEMORY_BYTES: Final = 2048 * MIB  # of address space, some of which nobody touches
VALIDATOR_MEMORY_BYTES_MIN: Final = 128 * MIB
VALIDATOR_PRINTED_BYTES_MAX: Final = 4 * MIB  # by one that goes on printing
VALIDATOR_LAST_WORDS_BYTES: Final = 2 * KIB  # of what it printed, told if it crashes
VALIDATOR_ANSWER_BYTES_MAX: Final = 1 * MIB
VERDICT_ROWS_MAX: Final = 20  # reasons, positions and samples that are kept of a verdict
VERDICT_CHARS_MAX: Final = 500  # of each
JOURNAL_ATTEMPTS: Final = 20  # to write behind what others write at the same time
POLICY_BYTES_MAX: Final = 1 * MIB
HOLD_POLICY_S: Final = 60.0  # that a fork of an agent may hold its parent, unless the policy says otherwise
REVIEW_POLICY_S: Final = 7 * 86_400.0  # that a proposal waits for a person
FORK_TTL_POLICY_S: Final = 86_400.0  # that a fork of an agent lives
FORK_POLICY_BYTES: Final = 64 * MIB  # that an agent may write on one fork
FORK_POLICY_BYTES_PER_S: Final = 4 * MIB
AGENT_FORKS_MAX: Final = 16  # that one agent may have of one log at a time
AGENT_PROPOSALS_MAX: Final = 16  # for one log that one agent may have open at a time
CLAIM_S: Final = 30.0  # that a desk may take for a proposal beyond its validators' time, before another goes on with it
AGENT_PROPOSALS_LATELY_MAX: Final = 1_000  # for one log that one agent may make within AGENT_PROPOSALS_S
AGENT_PROPOSALS_S: Final = 3600.0
PROPOSAL_ATTEMPTS: Final = 3  # to carry one out
PROPOSAL_KEPT_S: Final = 30 * 86_400.0  # that one is remembered after it ended
PROPOSALS_KEPT_MAX: Final = 10_000  # that are remembered after they ended
PROPOSAL_RECORDS_MAX: Final = 1_000_000  # of a fork that waits for a person: they are copied when one approves
PROPOSAL_BYTES_MAX: Final = 1024 * MIB
PROPOSAL_RUNS_MAX: Final = 100_000  # of consecutive records that it has between those of its parent
PROPOSAL_TITLE_CHARS_MAX: Final = 200
PROPOSAL_NOTE_CHARS_MAX: Final = 10_000
COPY_BATCH_BYTES: Final = 4 * MIB  # of records that are copied onto a fresh fork at once
SUMMARY_RECORDS_MAX: Final = 5  # that are shown with a proposal
SUMMARY_CHARS_MAX: Final = 200  # of each
AUDIT_TEXT_CHARS_MAX: Final = 500  # of one argument, or of what went wrong
AUDIT_ARGUMENTS_ROWS_MAX: Final = 50  # of one call, at each level
AUDIT_ARGUMENTS_CHARS_MAX: Final = 64 * KIB  # of one call in all
AUDIT_SECRET_CHARS_MAX: Final = 16 * KIB  # beyond what is kept of a text, that are looked at for secrets
AUDIT_DEPTH_MAX: Final = 4
AUDIT_WAITING_RECORDS_MAX: Final = 1_000  # entries of reading calls that are not durable yet

# Metadata on etcd.
ETCD_TIMEOUT_S: Final = 0.5  # for one request; another member is asked after it
ETCD_BYTES_PER_S: Final = 2 * MIB  # the time that a request's bytes are granted beyond that
ETCD_READ_TIMEOUT_S: Final = 10.0  # for a read with everything that is tried again
ETCD_APPEND_TIMEOUT_S: Final = 30.0  # the same for a commit, before its outcome is reported as unknown
ETCD_LOGIN_TIMEOUT_S: Final = 5.0  # for a password to be checked, which is slow on purpose
ETCD_RETRY_S: Final = 0.05  # between two rounds of asking all members
ETCD_BACKOFF_MAX_S: Final = 0.3  # between two attempts to connect to one
ETCD_WATCH_PING_S: Final = 0.5  # of silence, before a watched member is asked whether it is there
ETCD_WATCH_SILENCE_S: Final = 2.0  # after which another one is watched
ETCD_WATCHED_BYTES_MAX: Final = 64 * MIB  # that wait to be taken in by a follower
ETCD_ID_ATTEMPTS: Final = 10  # to settle what a cluster is called
ETCD_LEASE_S: Final = 3.0  # without a sign of life, before another process may write
ETCD_LEASE_MAX_S: Final = 3600.0
ETCD_REVOKE_TIMEOUT_S: Final = 2.0  # for a lease to be given back; else it ends by itself
ETCD_PIECE_BYTES_MAX: Final = 1 * MIB  # of a frame in one request; etcd refuses more than 1.5 MiB
ETCD_READ_BYTES: Final = 4 * MIB  # about what one answer to a read of the log holds
ETCD_READ_SLOTS_MAX: Final = 256  # the same in slots
ETCD_READ_SLOTS_MIN: Final = 4  # asked for at first, as nobody knows how large they are

# Writes of Spark.
SPARK_REACH_S: Final = 30.0  # for a process of Spark to reach the braid, before its task fails and is tried again
SPARK_PAUSE_S: Final = 0.05  # between two attempts; it doubles while a commit waits
SPARK_PAUSE_MAX_S: Final = 1.0
SPARK_JOINED_TIMEOUT_S: Final = 10.0  # that a call may take through the holder of a directory, who may just have left
SPARK_ABORT_S: Final = 5.0  # for letting go of what a failed write stored, which ends by itself else
SPARK_COMMIT_TIMEOUT_S: Final = 120.0  # that a commit is asked for again and again
SPARK_BLOCKED_TIMEOUT_S: Final = 60.0  # that a commit waits for the decision about a fork

# Pipelines on forks.
SPARK_RUN_S: Final = 3600.0  # for a run on a fork, before it is stopped
SPARK_OUTPUT_TTL_S: Final = 86_400.0  # that the output of such a run is kept, unless it is discarded
SPARK_TABLE_TTL_S: Final = 3600.0  # that a table as of some position is kept, unless it is forgotten
SPARK_SAMPLE_ROWS: Final = 5  # that a verdict shows of those that speak against a fork
SPARK_REASON_CHARS_MAX: Final = 2_000  # of an error that a verdict tells of

# What is told of records by looking at a few.
DESCRIBE_SAMPLE_RECORDS: Final = 500
DESCRIBE_SAMPLE_BYTES: Final = 4 * MIB
DESCRIBE_DEPTH_MAX: Final = 6  # of nested JSON
DESCRIBE_FIELDS_ROWS_MAX: Final = 200  # of one object, and items of one array
DESCRIBE_ENUM_ROWS_MAX: Final = 12  # different texts in a field that is still called an enumeration
DESCRIBE_ENUM_REPEATS_ROWS: Final = 3  # times that each of them is seen, on average
DESCRIBE_KEYS_ROWS_MAX: Final = 10  # most frequent keys that are named
DESCRIBE_TEXT_CHARS_MAX: Final = 80
DESCRIBE_RATE_S: Final = 60.0  # the last so many seconds of a log tell its present rate

# SQL over a range of a log.
SQL_RECORDS_MAX: Final = 1_000_000  # what is more is for Spark
SQL_READ_BYTES_MAX: Final = 256 * MIB
SQL_CHUNK_RECORDS_MIN: Final = 4  # read at first, as nobody knows how large they are
SQL_CHUNK_RECORDS_GROWTH: Final = 8  # how many times as many may be read next
SQL_CHUNK_BYTES: Final = 8 * MIB  # about what is read at once
SQL_MEMORY_BYTES: Final = 512 * MIB  # that the engine may use for a query
SQL_ADDRESS_SPACE_BYTES: Final = 4096 * MIB  # that its process may map, code and all
SQL_THREADS: Final = 2
SQL_TIME_S: Final = 20.0
SQL_TIME_MAX_S: Final = 120.0
SQL_KILL_S: Final = 2.0  # after its time is over a query is asked to end; after so much more its process is killed
SQL_STATEMENT_CHARS_MAX: Final = 20_000
SQL_ROWS: Final = 100
SQL_ROWS_MAX: Final = 5_000
SQL_COLUMNS_ROWS_MAX: Final = 200
SQL_ANSWER_BYTES_MAX: Final = 256 * KIB
SQL_CELL_CHARS_MAX: Final = 4_000
SQL_COLUMN_CHARS_MAX: Final = 256  # of its name, and of its type
SQL_NAME_CHARS_MAX: Final = 80  # of a name that a refusal tells of

# The same by Spark, for ranges that are larger.
SQL_SPARK_THREADS: Final = 2
SQL_SPARK_MEMORY_BYTES: Final = 1024 * MIB  # of heap
SQL_SPARK_ADDRESS_SPACE_BYTES: Final = 12 * 1024 * MIB  # that each of its processes may map
SQL_SPARK_RESULT_BYTES: Final = 64 * MIB  # that the rows of an answer may take, before they are cut
SQL_SPARK_DISK_BYTES_MAX: Final = 4096 * MIB  # that it may put aside while it sorts and groups
SQL_SPARK_LOOK_S: Final = 0.5  # between two looks at that
SQL_SPARK_START_S: Final = 120.0  # for Spark to start
SQL_SPARK_KILL_S: Final = 10.0  # after its time is over a query is asked to end; after so much more Spark is killed
SQL_SPARK_TURN_S: Final = 120.0  # that a query waits for those before it
SQL_SPARK_WAITING_THREADS_MAX: Final = 1  # that do; another query is refused at once
SQL_SPARK_IDLE_S: Final = 300.0  # that Spark is kept when nobody queries
SQL_SPARK_PARTS_ROWS_MAX: Final = 6_000  # of a parsed query that are looked at
SQL_SPARK_ERROR_CHARS_MAX: Final = 1_500
SQL_SPARK_LINE_BYTES_MAX: Final = 1 * MIB  # of what it says at once

# What agents are told, and may ask for, through `braid mcp`.
MCP_CALL_S: Final = 30.0  # that a tool may take
MCP_TURN_S: Final = 10.0  # that an append waits for another to the same fork, and a fork of an agent for another
MCP_LONG_CALL_S: Final = 600.0  # that one may take which runs a query or validators, with their own limits inside
MCP_THREADS_MAX: Final = 32  # calls that are carried out side by side
MCP_SLOW_THREADS_MAX: Final = 4  # of them, those that run a query or validators; others wait
MCP_RECORDS: Final = 20  # records in an answer, unless more are asked for
MCP_RECORDS_MAX: Final = 1_000
MCP_ANSWER_BYTES: Final = 32 * KIB  # of values in an answer, unless more are asked for
MCP_ANSWER_BYTES_MAX: Final = 512 * KIB
MCP_SAMPLE_RECORDS: Final = 3  # shown with a description
MCP_SAMPLE_ROUNDS: Final = 10  # places in a log that a sample is taken from
MCP_WAIT_MAX_S: Final = 20.0  # for new records
MCP_SCAN_RECORDS_MAX: Final = 200_000  # that a search looks at before it says how far it got
MCP_SCAN_BYTES_MAX: Final = 64 * MIB
MCP_LOGS: Final = 50  # logs in a listing, unless more are asked for
MCP_LOGS_MAX: Final = 500
MCP_APPEND_RECORDS_MAX: Final = 1_000
MCP_APPEND_BYTES_MAX: Final = 1 * MIB
MCP_APPEND_BURST_S: Final = 10.0  # of its rate that an agent may write at once
MCP_SCHEMA_CHARS_MAX: Final = 64 * KIB  # of a schema that an agent gives
MCP_PURPOSE_CHARS_MAX: Final = 500
MCP_KEY_CHARS_MAX: Final = 200  # of a request key
MCP_DIFF_WINDOW_RECORDS: Final = 5_000  # of a fork that are looked at for one page
MCP_WATCHED_LOGS_MAX: Final = 64  # by all that listen, side by side
MCP_WATCHED_LOGS_EACH_MAX: Final = 16  # by one of them
MCP_WATCH_S: Final = 1.0  # that a watcher waits at once, before it looks whether anybody still listens
MCP_WATCH_PAUSE_S: Final = 0.2  # between two words that a log has grown
MCP_WATCH_RETRY_S: Final = 0.5  # before a watcher asks a service again that was not there
MCP_TOKENS_KEPT_MAX: Final = 256  # bearers of tokens whose connections are kept
MCP_CALLER_IDLE_S: Final = 3600.0  # after which one is closed
MCP_REQUEST_BYTES_MAX: Final = 4 * MIB  # of a request over HTTP
MCP_TEND_S: Final = 30.0  # how often proposals are looked after, though nobody calls
MCP_SHUTDOWN_S: Final = 3.0  # for calls over HTTP to be answered when the server ends
MCP_ERROR_CHARS_MAX: Final = 2_000  # of an error
