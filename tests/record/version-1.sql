-- A recording of tests.record.compiles.stages(6, 4), made with schema version 1.
PRAGMA application_id = 1129792114;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attributes (id INTEGER PRIMARY KEY, json TEXT NOT NULL);
INSERT INTO "attributes" VALUES(1,'{"value":{"resource":"0dac05cbeb20fec491f6d757f22e19bebec14c0ec48c8014e54976509abdd25f","type":"tensor<1000xf32>"}}');
INSERT INTO "attributes" VALUES(2,'{"axis":0}');
INSERT INTO "attributes" VALUES(3,'{"axis":1}');
INSERT INTO "attributes" VALUES(4,'{"axis":2}');
INSERT INTO "attributes" VALUES(5,'{"axis":3}');
INSERT INTO "attributes" VALUES(6,'{"axis":4}');
INSERT INTO "attributes" VALUES(7,'{"axis":5}');
CREATE TABLE blob (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE block (
  id INTEGER PRIMARY KEY, arguments TEXT NOT NULL, outputs TEXT NOT NULL, length INTEGER NOT NULL,
  base INTEGER REFERENCES block, size INTEGER NOT NULL, data BLOB NOT NULL);
INSERT INTO "block" VALUES(1,'[2]','[8,1]',7,NULL,7,X'785E636480004612690001180008');
INSERT INTO "block" VALUES(2,'[2]','[8,1]',7,NULL,7,X'785E636480007628CD08A57FFF8700181F46B340E501E4CC0804');
INSERT INTO "block" VALUES(3,'[2]','[8,1]',7,NULL,7,X'785E636480006E28CD88467FFF0F01307116A83C00A5940804');
INSERT INTO "block" VALUES(4,'[2]','[8,1]',7,NULL,7,X'785E636480006E28CD02A519D1E82FFF2100260F0066640804');
CREATE TABLE buffer (
  id INTEGER PRIMARY KEY, value INTEGER REFERENCES value, op INTEGER REFERENCES op,
  name TEXT NOT NULL, kind TEXT NOT NULL, tier TEXT NOT NULL, "offset" INTEGER NOT NULL,
  size INTEGER NOT NULL, unpadded_size INTEGER NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL);
CREATE TABLE check_result (
  id INTEGER PRIMARY KEY, stage INTEGER NOT NULL REFERENCES stage,
  rewrite INTEGER REFERENCES rewrite, verdict TEXT NOT NULL, worst_error REAL, tolerance REAL,
  value INTEGER REFERENCES value, element TEXT NOT NULL, seconds REAL NOT NULL, note TEXT NOT NULL);
CREATE TABLE diagnostic (
  id INTEGER PRIMARY KEY, stage INTEGER REFERENCES stage, severity TEXT NOT NULL,
  message TEXT NOT NULL, function TEXT NOT NULL, op INTEGER REFERENCES op, place TEXT NOT NULL);
INSERT INTO "diagnostic" VALUES(1,1,'warning','careful 1','main',8,'');
INSERT INTO "diagnostic" VALUES(2,2,'warning','careful 2','main',12,'');
INSERT INTO "diagnostic" VALUES(3,3,'warning','careful 3','main',12,'');
CREATE TABLE event (id INTEGER PRIMARY KEY, seconds REAL NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL);
INSERT INTO "event" VALUES(1,1.55861377716064453125e-02,'end','{"status":"finished","message":""}');
CREATE TABLE figure (stage INTEGER REFERENCES stage, section TEXT NOT NULL, name TEXT NOT NULL, value);
INSERT INTO "figure" VALUES(0,'stage','ops',7);
INSERT INTO "figure" VALUES(1,'stage','ops',3);
INSERT INTO "figure" VALUES(2,'stage','ops',3);
INSERT INTO "figure" VALUES(3,'stage','ops',3);
CREATE TABLE function (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, level TEXT NOT NULL,
  body INTEGER NOT NULL REFERENCES block, attributes INTEGER REFERENCES attributes);
INSERT INTO "function" VALUES(1,'main','tensor',1,NULL);
INSERT INTO "function" VALUES(2,'main','tensor',2,NULL);
INSERT INTO "function" VALUES(3,'main','tensor',3,NULL);
INSERT INTO "function" VALUES(4,'main','tensor',4,NULL);
CREATE TABLE kernel (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, cached INTEGER NOT NULL,
  compile_seconds REAL NOT NULL, source INTEGER NOT NULL REFERENCES blob,
  llvm_ir INTEGER NOT NULL REFERENCES blob, assembly INTEGER NOT NULL REFERENCES blob,
  machine_code INTEGER NOT NULL REFERENCES blob, line_map TEXT NOT NULL,
  assembly_map TEXT NOT NULL, facts TEXT NOT NULL);
CREATE TABLE kernel_op (
  kernel INTEGER NOT NULL REFERENCES kernel, role TEXT NOT NULL, position INTEGER NOT NULL,
  op INTEGER NOT NULL REFERENCES op, PRIMARY KEY (kernel, role, position)) WITHOUT ROWID;
CREATE TABLE kernel_step (
  kernel INTEGER NOT NULL REFERENCES kernel, number INTEGER NOT NULL, name TEXT NOT NULL,
  text INTEGER NOT NULL REFERENCES blob, PRIMARY KEY (kernel, number)) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('began','0.0');
INSERT INTO "meta" VALUES('message','""');
INSERT INTO "meta" VALUES('model','"m"');
INSERT INTO "meta" VALUES('seconds','0.0');
INSERT INTO "meta" VALUES('status','"finished"');
INSERT INTO "meta" VALUES('writer','"1@ab"');
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "name" VALUES(1,'core.constant');
INSERT INTO "name" VALUES(2,'import');
INSERT INTO "name" VALUES(3,'core.exp');
INSERT INTO "name" VALUES(4,'core.tanh');
INSERT INTO "name" VALUES(5,'other value');
INSERT INTO "name" VALUES(6,'core.sin');
INSERT INTO "name" VALUES(7,'same value');
INSERT INTO "name" VALUES(8,'');
CREATE TABLE node (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
  line INTEGER NOT NULL, scope TEXT NOT NULL, stack TEXT NOT NULL);
INSERT INTO "node" VALUES(1,'w','get_attr','model.py',1,'net','[]');
INSERT INTO "node" VALUES(2,'exp_0','aten.exp','model.py',2,'net/0','[]');
INSERT INTO "node" VALUES(3,'exp_1','aten.exp','model.py',3,'net/1','[]');
INSERT INTO "node" VALUES(4,'exp_2','aten.exp','model.py',4,'net/2','[]');
INSERT INTO "node" VALUES(5,'exp_3','aten.exp','model.py',5,'net/3','[]');
INSERT INTO "node" VALUES(6,'exp_4','aten.exp','model.py',6,'net/4','[]');
INSERT INTO "node" VALUES(7,'exp_5','aten.exp','model.py',7,'net/5','[]');
CREATE TABLE op (
  id INTEGER PRIMARY KEY, kind INTEGER NOT NULL REFERENCES name, operands TEXT NOT NULL,
  results TEXT NOT NULL, attributes INTEGER REFERENCES attributes, regions TEXT NOT NULL,
  origin INTEGER REFERENCES origin);
INSERT INTO "op" VALUES(1,1,'[]','[1]',1,'[]',1);
INSERT INTO "op" VALUES(2,3,'[2]','[3]',2,'[]',2);
INSERT INTO "op" VALUES(3,3,'[3]','[4]',3,'[]',3);
INSERT INTO "op" VALUES(4,3,'[4]','[5]',4,'[]',4);
INSERT INTO "op" VALUES(5,3,'[5]','[6]',5,'[]',5);
INSERT INTO "op" VALUES(6,3,'[6]','[7]',6,'[]',6);
INSERT INTO "op" VALUES(7,3,'[7]','[8]',7,'[]',7);
INSERT INTO "op" VALUES(8,4,'[2]','[9]',NULL,'[]',8);
INSERT INTO "op" VALUES(9,6,'[9]','[4]',3,'[]',9);
INSERT INTO "op" VALUES(10,6,'[7]','[8]',7,'[]',10);
INSERT INTO "op" VALUES(11,6,'[3]','[4]',3,'[]',9);
INSERT INTO "op" VALUES(12,6,'[2]','[9]',NULL,'[]',11);
INSERT INTO "op" VALUES(13,4,'[9]','[10]',NULL,'[]',12);
INSERT INTO "op" VALUES(14,6,'[10]','[5]',4,'[]',13);
INSERT INTO "op" VALUES(15,6,'[4]','[5]',4,'[]',13);
INSERT INTO "op" VALUES(16,6,'[9]','[10]',NULL,'[]',14);
INSERT INTO "op" VALUES(17,4,'[10]','[11]',NULL,'[]',15);
INSERT INTO "op" VALUES(18,6,'[11]','[6]',5,'[]',16);
INSERT INTO "op" VALUES(19,6,'[5]','[6]',5,'[]',16);
CREATE TABLE origin (
  id INTEGER PRIMARY KEY, rule INTEGER NOT NULL REFERENCES name, parents TEXT NOT NULL,
  node INTEGER REFERENCES node, reason TEXT NOT NULL);
INSERT INTO "origin" VALUES(1,2,'[]',1,'');
INSERT INTO "origin" VALUES(2,2,'[]',2,'');
INSERT INTO "origin" VALUES(3,2,'[]',3,'');
INSERT INTO "origin" VALUES(4,2,'[]',4,'');
INSERT INTO "origin" VALUES(5,2,'[]',5,'');
INSERT INTO "origin" VALUES(6,2,'[]',6,'');
INSERT INTO "origin" VALUES(7,2,'[]',7,'');
INSERT INTO "origin" VALUES(8,5,'[2]',NULL,'');
INSERT INTO "origin" VALUES(9,7,'[3]',NULL,'');
INSERT INTO "origin" VALUES(10,7,'[7]',NULL,'');
INSERT INTO "origin" VALUES(11,7,'[8]',NULL,'');
INSERT INTO "origin" VALUES(12,5,'[9]',NULL,'');
INSERT INTO "origin" VALUES(13,7,'[4]',NULL,'');
INSERT INTO "origin" VALUES(14,7,'[12]',NULL,'');
INSERT INTO "origin" VALUES(15,5,'[13]',NULL,'');
INSERT INTO "origin" VALUES(16,7,'[5]',NULL,'');
CREATE TABLE result (
  value INTEGER NOT NULL REFERENCES value, op INTEGER NOT NULL REFERENCES op,
  PRIMARY KEY (value, op)) WITHOUT ROWID;
INSERT INTO "result" VALUES(1,1);
INSERT INTO "result" VALUES(3,2);
INSERT INTO "result" VALUES(4,3);
INSERT INTO "result" VALUES(4,9);
INSERT INTO "result" VALUES(4,11);
INSERT INTO "result" VALUES(5,4);
INSERT INTO "result" VALUES(5,14);
INSERT INTO "result" VALUES(5,15);
INSERT INTO "result" VALUES(6,5);
INSERT INTO "result" VALUES(6,18);
INSERT INTO "result" VALUES(6,19);
INSERT INTO "result" VALUES(7,6);
INSERT INTO "result" VALUES(8,7);
INSERT INTO "result" VALUES(8,10);
INSERT INTO "result" VALUES(9,8);
INSERT INTO "result" VALUES(9,12);
INSERT INTO "result" VALUES(10,13);
INSERT INTO "result" VALUES(10,16);
INSERT INTO "result" VALUES(11,17);
CREATE TABLE rewrite (
  id INTEGER PRIMARY KEY, stage INTEGER NOT NULL REFERENCES stage, number INTEGER NOT NULL,
  rule INTEGER NOT NULL REFERENCES name, source INTEGER NOT NULL REFERENCES name,
  function TEXT NOT NULL, tolerance REAL, note TEXT NOT NULL, microseconds REAL NOT NULL);
INSERT INTO "rewrite" VALUES(1,1,0,7,8,'main',1.0e-06,'',84.5909999043215);
INSERT INTO "rewrite" VALUES(2,1,1,5,8,'main',NULL,'n',9.52170012169517576694e+01);
INSERT INTO "rewrite" VALUES(3,1,2,7,8,'main',1.0e-06,'',4.61419986095279455184e+01);
INSERT INTO "rewrite" VALUES(4,2,0,7,8,'main',1.0e-06,'',4.15850008721463382244e+01);
INSERT INTO "rewrite" VALUES(5,2,1,5,8,'main',NULL,'n',3.28988000546814873814e+02);
INSERT INTO "rewrite" VALUES(6,2,2,7,8,'main',1.0e-06,'',47.3809996037744);
INSERT INTO "rewrite" VALUES(7,3,0,7,8,'main',1.0e-06,'',3.88629996450617909431e+01);
INSERT INTO "rewrite" VALUES(8,3,1,5,8,'main',NULL,'n',6.18470003246329724788e+01);
INSERT INTO "rewrite" VALUES(9,3,2,7,8,'main',1.0e-06,'',3.70059970009606331586e+01);
CREATE TABLE rewrite_op (
  rewrite INTEGER NOT NULL REFERENCES rewrite, side INTEGER NOT NULL, position INTEGER NOT NULL,
  op INTEGER NOT NULL REFERENCES op, PRIMARY KEY (rewrite, side, position)) WITHOUT ROWID;
INSERT INTO "rewrite_op" VALUES(2,0,0,2);
INSERT INTO "rewrite_op" VALUES(1,0,0,3);
INSERT INTO "rewrite_op" VALUES(4,0,0,4);
INSERT INTO "rewrite_op" VALUES(7,0,0,5);
INSERT INTO "rewrite_op" VALUES(3,0,0,7);
INSERT INTO "rewrite_op" VALUES(2,1,0,8);
INSERT INTO "rewrite_op" VALUES(6,0,0,8);
INSERT INTO "rewrite_op" VALUES(5,0,0,9);
INSERT INTO "rewrite_op" VALUES(3,1,0,10);
INSERT INTO "rewrite_op" VALUES(1,1,0,11);
INSERT INTO "rewrite_op" VALUES(6,1,0,12);
INSERT INTO "rewrite_op" VALUES(5,1,0,13);
INSERT INTO "rewrite_op" VALUES(9,0,0,13);
INSERT INTO "rewrite_op" VALUES(8,0,0,14);
INSERT INTO "rewrite_op" VALUES(4,1,0,15);
INSERT INTO "rewrite_op" VALUES(9,1,0,16);
INSERT INTO "rewrite_op" VALUES(8,1,0,17);
INSERT INTO "rewrite_op" VALUES(7,1,0,19);
CREATE TABLE rewrite_value (
  rewrite INTEGER NOT NULL REFERENCES rewrite, old INTEGER NOT NULL REFERENCES value,
  new INTEGER NOT NULL REFERENCES value, PRIMARY KEY (rewrite, old)) WITHOUT ROWID;
INSERT INTO "rewrite_value" VALUES(1,4,4);
INSERT INTO "rewrite_value" VALUES(4,5,5);
INSERT INTO "rewrite_value" VALUES(7,6,6);
INSERT INTO "rewrite_value" VALUES(3,8,8);
INSERT INTO "rewrite_value" VALUES(2,3,9);
INSERT INTO "rewrite_value" VALUES(6,9,9);
INSERT INTO "rewrite_value" VALUES(5,4,10);
INSERT INTO "rewrite_value" VALUES(9,10,10);
INSERT INTO "rewrite_value" VALUES(8,5,11);
CREATE TABLE source_file (name TEXT PRIMARY KEY, text INTEGER NOT NULL REFERENCES blob) WITHOUT ROWID;
CREATE TABLE stage (
  id INTEGER PRIMARY KEY, pass TEXT NOT NULL, summary TEXT NOT NULL, options TEXT NOT NULL,
  half TEXT NOT NULL, exact INTEGER NOT NULL, tolerance_class TEXT NOT NULL,
  changed INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
  functions TEXT NOT NULL, symbols TEXT NOT NULL);
INSERT INTO "stage" VALUES(0,'import','Read the model.','{}','meaning',1,'',1,0.0,1.2805938720703125e-02,'[1]','{}');
INSERT INTO "stage" VALUES(1,'pass_1','','{"limit":1}','meaning',0,'elementwise',1,0.5,1.3679981231689453125e-02,'[2]','{}');
INSERT INTO "stage" VALUES(2,'pass_2','','{"limit":2}','meaning',1,'elementwise',1,0.5,1.4420986175537109375e-02,'[3]','{}');
INSERT INTO "stage" VALUES(3,'pass_3','','{"limit":3}','meaning',0,'elementwise',1,0.5,1.50496959686279296875e-02,'[4]','{}');
CREATE TABLE stage_op (
  stage INTEGER NOT NULL REFERENCES stage, op INTEGER NOT NULL REFERENCES op,
  change INTEGER NOT NULL, PRIMARY KEY (op, stage)) WITHOUT ROWID;
INSERT INTO "stage_op" VALUES(0,1,1);
INSERT INTO "stage_op" VALUES(0,2,1);
INSERT INTO "stage_op" VALUES(1,2,-1);
INSERT INTO "stage_op" VALUES(0,3,1);
INSERT INTO "stage_op" VALUES(1,3,-1);
INSERT INTO "stage_op" VALUES(0,4,1);
INSERT INTO "stage_op" VALUES(2,4,-1);
INSERT INTO "stage_op" VALUES(0,5,1);
INSERT INTO "stage_op" VALUES(3,5,-1);
INSERT INTO "stage_op" VALUES(0,6,1);
INSERT INTO "stage_op" VALUES(0,7,1);
INSERT INTO "stage_op" VALUES(1,7,-1);
INSERT INTO "stage_op" VALUES(1,8,1);
INSERT INTO "stage_op" VALUES(2,8,-1);
INSERT INTO "stage_op" VALUES(1,9,1);
INSERT INTO "stage_op" VALUES(2,9,-1);
INSERT INTO "stage_op" VALUES(1,10,1);
INSERT INTO "stage_op" VALUES(2,12,1);
INSERT INTO "stage_op" VALUES(2,13,1);
INSERT INTO "stage_op" VALUES(3,13,-1);
INSERT INTO "stage_op" VALUES(2,14,1);
INSERT INTO "stage_op" VALUES(3,14,-1);
INSERT INTO "stage_op" VALUES(3,16,1);
INSERT INTO "stage_op" VALUES(3,17,1);
INSERT INTO "stage_op" VALUES(3,18,1);
CREATE TABLE tensor_stats (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value, stage INTEGER NOT NULL,
  minimum REAL, maximum REAL, mean REAL, nan INTEGER NOT NULL, inf INTEGER NOT NULL,
  edges TEXT NOT NULL, counts TEXT NOT NULL, data_type TEXT NOT NULL, data_shape TEXT NOT NULL,
  data INTEGER REFERENCES blob);
CREATE TABLE timing (
  id INTEGER PRIMARY KEY, launch INTEGER NOT NULL, kernel TEXT NOT NULL,
  op INTEGER REFERENCES op, threads INTEGER NOT NULL, flops INTEGER NOT NULL,
  bytes INTEGER NOT NULL, median REAL, minimum REAL, p95 REAL, samples BLOB NOT NULL);
CREATE TABLE type (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "type" VALUES(1,'tensor<1000xf32>');
INSERT INTO "type" VALUES(2,'tensor<4x8xf32>');
CREATE TABLE value (id INTEGER PRIMARY KEY, type INTEGER NOT NULL REFERENCES type, name TEXT);
INSERT INTO "value" VALUES(1,1,'w');
INSERT INTO "value" VALUES(2,2,'x');
INSERT INTO "value" VALUES(3,2,NULL);
INSERT INTO "value" VALUES(4,2,'v1');
INSERT INTO "value" VALUES(5,2,NULL);
INSERT INTO "value" VALUES(6,2,'v3');
INSERT INTO "value" VALUES(7,2,NULL);
INSERT INTO "value" VALUES(8,2,'v5');
INSERT INTO "value" VALUES(9,2,NULL);
INSERT INTO "value" VALUES(10,2,NULL);
INSERT INTO "value" VALUES(11,2,NULL);
CREATE TABLE weight (digest TEXT PRIMARY KEY, type TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "weight" VALUES('0dac05cbeb20fec491f6d757f22e19bebec14c0ec48c8014e54976509abdd25f','tensor<1000xf32>');
CREATE INDEX rewrite_stage ON rewrite (stage, number);
CREATE INDEX rewrite_op_op ON rewrite_op (op);
CREATE INDEX rewrite_value_old ON rewrite_value (old);
CREATE INDEX rewrite_value_new ON rewrite_value (new);
CREATE INDEX kernel_op_op ON kernel_op (op);
COMMIT;
