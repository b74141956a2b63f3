-- The schema of a recording (*.run), version 7.  docs/recording.md explains it with recipes.
-- Lists of ids are JSON arrays; blobs in `blob` are zlib-compressed.  Data that follows from other
-- rows is a view, so that a compile does not write it twice.

-- Facts about the run: model, target, versions, machine, status, ...  Values are JSON.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Strings that recur: op kinds, rules, functions of rules.
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL);

-- Types, by their MLIR text.
CREATE TABLE type (id INTEGER PRIMARY KEY, text TEXT NOT NULL);

-- The distinct attribute dictionaries of ops and functions, as JSON.
CREATE TABLE attributes (id INTEGER PRIMARY KEY, json TEXT NOT NULL);

-- Nodes of the framework's graph: the roots of all origins.  stack: [[file, line, function, text]].
CREATE TABLE node (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
  line INTEGER NOT NULL, scope TEXT NOT NULL, stack TEXT NOT NULL);

-- Origins of ops: a rule and the origins that it was applied to (ids smaller than this one).
CREATE TABLE origin (
  id INTEGER PRIMARY KEY, rule INTEGER NOT NULL REFERENCES name, parents TEXT NOT NULL,
  node INTEGER REFERENCES node, reason TEXT NOT NULL);

CREATE TABLE value (id INTEGER PRIMARY KEY, type INTEGER NOT NULL REFERENCES type, name TEXT);

-- Every op that occurs in a stage or a rewrite, once.
CREATE TABLE op (
  id INTEGER PRIMARY KEY, kind INTEGER NOT NULL REFERENCES name, operands TEXT NOT NULL,
  results TEXT NOT NULL, attributes INTEGER REFERENCES attributes, regions TEXT NOT NULL,
  origin INTEGER REFERENCES origin);

-- The ops that define a value (several if an op was replaced by one that defines the same value).
CREATE VIEW result (value, op) AS
  SELECT made.value, op.id FROM op, json_each(op.results) made;

-- A block's ops: `length` ids, in full (base NULL) or as edits of the block `base`; see the docs.
CREATE TABLE block (
  id INTEGER PRIMARY KEY, arguments TEXT NOT NULL, outputs TEXT NOT NULL, length INTEGER NOT NULL,
  base INTEGER REFERENCES block, size INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE function (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, level TEXT NOT NULL,
  body INTEGER NOT NULL REFERENCES block, attributes INTEGER REFERENCES attributes);

-- The module after a pass; stage 0 is the import.  functions: ids in order; symbols: name -> range;
-- added, removed: the ops that entered and left, nested ones too.
CREATE TABLE stage (
  id INTEGER PRIMARY KEY, pass TEXT NOT NULL, summary TEXT NOT NULL, options TEXT NOT NULL,
  half TEXT NOT NULL, exact INTEGER NOT NULL, tolerance_class TEXT NOT NULL,
  changed INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
  functions TEXT NOT NULL, symbols TEXT NOT NULL, added TEXT NOT NULL, removed TEXT NOT NULL);

-- Ops that entered (+1) or left (-1) at a stage, nested ones too.
CREATE VIEW stage_op (stage, op, change) AS
  SELECT stage.id, entering.value, 1 FROM stage, json_each(stage.added) entering
  UNION ALL SELECT stage.id, leaving.value, -1 FROM stage, json_each(stage.removed) leaving;

-- Figures of a stage (section 'stage'), the memory plan, the timing, or the run (stage NULL).
CREATE TABLE figure (stage INTEGER REFERENCES stage, section TEXT NOT NULL, name TEXT NOT NULL, value);

CREATE TABLE diagnostic (
  id INTEGER PRIMARY KEY, stage INTEGER REFERENCES stage, severity TEXT NOT NULL,
  message TEXT NOT NULL, function TEXT NOT NULL, op INTEGER REFERENCES op, place TEXT NOT NULL);

-- Rule applications in order; tolerance NULL: exact.  old, new: op ids; mapped: [old value, new
-- value] pairs.
CREATE TABLE rewrite (
  id INTEGER PRIMARY KEY, stage INTEGER NOT NULL REFERENCES stage, number INTEGER NOT NULL,
  rule INTEGER NOT NULL REFERENCES name, source INTEGER NOT NULL REFERENCES name,
  function TEXT NOT NULL, tolerance REAL, note TEXT NOT NULL, microseconds REAL NOT NULL,
  old TEXT NOT NULL, new TEXT NOT NULL, mapped TEXT NOT NULL);
CREATE INDEX rewrite_stage ON rewrite (stage, number);

-- The ops of a rewrite: side 0 before it, 1 after it.
CREATE VIEW rewrite_op (rewrite, side, position, op) AS
  SELECT rewrite.id, 0, before.key, before.value FROM rewrite, json_each(rewrite.old) before
  UNION ALL SELECT rewrite.id, 1, after.key, after.value FROM rewrite, json_each(rewrite.new) after;

-- The value map of a rewrite: `new` carries the meaning of `old` (equal: defined again).
CREATE VIEW rewrite_value (rewrite, old, new) AS
  SELECT rewrite.id, before.value, after.value
  FROM rewrite, json_each(rewrite.mapped) pair, json_each(pair.value) before,
    json_each(pair.value) after WHERE before.key = 0 AND after.key = 1;

-- verdict: bitwise, within, failed, unchecked.  element: the index of the worst error.
CREATE TABLE check_result (
  id INTEGER PRIMARY KEY, stage INTEGER NOT NULL REFERENCES stage,
  rewrite INTEGER REFERENCES rewrite, verdict TEXT NOT NULL, worst_error REAL, tolerance REAL,
  value INTEGER REFERENCES value, element TEXT NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL);

-- Compressed bytes, each content once; size is that of the content.
CREATE TABLE blob (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE kernel (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, cached INTEGER NOT NULL,
  compile_seconds REAL NOT NULL, source INTEGER NOT NULL REFERENCES blob,
  intermediate INTEGER NOT NULL REFERENCES blob, assembly INTEGER NOT NULL REFERENCES blob,
  machine_code INTEGER NOT NULL REFERENCES blob, line_map TEXT NOT NULL,
  assembly_map TEXT NOT NULL, facts TEXT NOT NULL, intermediate_map TEXT NOT NULL DEFAULT '[]');

-- role: 'computes' (a tensor-level op of the kernel) or 'launch' (an op that launches it).
CREATE TABLE kernel_op (
  kernel INTEGER NOT NULL REFERENCES kernel, role TEXT NOT NULL, position INTEGER NOT NULL,
  op INTEGER NOT NULL REFERENCES op, PRIMARY KEY (kernel, role, position)) WITHOUT ROWID;
CREATE INDEX kernel_op_op ON kernel_op (op);

-- The kernel's IR after each step of its schedule.
CREATE TABLE kernel_step (
  kernel INTEGER NOT NULL REFERENCES kernel, number INTEGER NOT NULL, name TEXT NOT NULL,
  text INTEGER NOT NULL REFERENCES blob, PRIMARY KEY (kernel, number)) WITHOUT ROWID;

-- Placed buffers: bytes [offset, offset + size) of tier during program positions [first, last].
CREATE TABLE buffer (
  id INTEGER PRIMARY KEY, value INTEGER REFERENCES value, op INTEGER REFERENCES op,
  name TEXT NOT NULL, kind TEXT NOT NULL, tier TEXT NOT NULL, "offset" INTEGER NOT NULL,
  size INTEGER NOT NULL, unpadded_size INTEGER NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL);

-- Executions of the program on its example inputs.  began: Unix time; digest: of the outputs ('' if
-- seeded values stood in for weights); median and samples (float64, little-endian): microseconds of
-- one execution as a whole.
CREATE TABLE execution (
  id INTEGER PRIMARY KEY, began REAL NOT NULL, machine TEXT NOT NULL, threads INTEGER NOT NULL,
  digest TEXT NOT NULL, median REAL, samples BLOB NOT NULL);

-- Measured launches of each execution; times in microseconds; samples: float64, little-endian.
CREATE TABLE launch_time (
  id INTEGER PRIMARY KEY, execution INTEGER NOT NULL REFERENCES execution, launch INTEGER NOT NULL,
  kernel TEXT NOT NULL, op INTEGER REFERENCES op, threads INTEGER NOT NULL,
  flops INTEGER NOT NULL, bytes INTEGER NOT NULL, median REAL, minimum REAL, p95 REAL,
  samples BLOB NOT NULL);

-- The launches of the newest execution.
CREATE VIEW timing (
  id, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples) AS
  SELECT id, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples
  FROM launch_time WHERE execution = (SELECT max(id) FROM execution);

-- Statistics of values on real inputs; NULL if there is no finite value.  data: the tensor's bytes.
CREATE TABLE tensor_stats (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value, stage INTEGER NOT NULL,
  minimum REAL, maximum REAL, mean REAL, nan INTEGER NOT NULL, inf INTEGER NOT NULL,
  edges TEXT NOT NULL, counts TEXT NOT NULL, data_type TEXT NOT NULL, data_shape TEXT NOT NULL,
  data INTEGER REFERENCES blob);

-- Values of the import compared with the framework's results for the same node.  element: the index
-- of the worst error, which is relative to the largest magnitude there; theirs and ours: the values
-- of that element, NULL if there are none.
CREATE TABLE framework_value (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value, framework TEXT NOT NULL,
  node TEXT NOT NULL, same INTEGER NOT NULL, worst_error REAL NOT NULL, element TEXT NOT NULL,
  theirs REAL, ours REAL);

-- What values lost when they became integers, on the example inputs, worst first.  value: in floats,
-- of `stage`; sqnr: signal-to-noise ratio (decibels; infinite: nothing lost); cosine: NULL if one of
-- both is 0; saturated: the share of elements beyond low to high, the range of the integers; minimum
-- to maximum: that on the calibration data; floats and dequantised: counts in the bins between
-- edges; alone: ratio of the results if only this value is quantised (NULL: not measured).
CREATE TABLE quantised_value (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value,
  integers INTEGER NOT NULL REFERENCES value, stage INTEGER NOT NULL, sqnr REAL NOT NULL,
  cosine REAL, saturated REAL NOT NULL, minimum REAL NOT NULL, maximum REAL NOT NULL,
  low REAL NOT NULL, high REAL NOT NULL, edges TEXT NOT NULL, floats TEXT NOT NULL,
  dequantised TEXT NOT NULL, alone REAL);

-- Ops that still compute floats after quantisation, and why.
CREATE TABLE float_op (op INTEGER PRIMARY KEY REFERENCES op, reason TEXT NOT NULL);

-- Iterations of a training run, counted from 1; a repeated one replaces its row.  id: never reused,
-- so rows that are new since a reading have larger ones.  root: of its receipt, or ''.
CREATE TABLE iteration (
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, loss REAL NOT NULL,
  seconds REAL NOT NULL, root TEXT NOT NULL, rate REAL, loss_scale REAL, skipped INTEGER);

-- The weights that the stages use (their bytes stay in the weight store).
CREATE TABLE weight (digest TEXT PRIMARY KEY, type TEXT NOT NULL) WITHOUT ROWID;

-- Text of the model's source files.
CREATE TABLE source_file (name TEXT PRIMARY KEY, text INTEGER NOT NULL REFERENCES blob) WITHOUT ROWID;

-- Other events, in seconds since the start: progress, end.
CREATE TABLE event (id INTEGER PRIMARY KEY, seconds REAL NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL);
