-- The catalog's tables. `mirror.*` holds plain copies of lake rows, each with the Lance fragment it
-- came from, so a refresh replaces the rows of changed fragments only. What users see are views
-- over the mirrors: which episodes are visible and how labels join is decided at query time, so an
-- incremental refresh cannot differ from a rebuild. A changed file here rebuilds every catalog.

CREATE SCHEMA mirror;

CREATE TABLE mirror.layout (digest VARCHAR);
CREATE TABLE mirror.versions (lake_table VARCHAR, version BIGINT);
CREATE TABLE mirror.fragments (lake_table VARCHAR, fragment BIGINT, key VARCHAR);

CREATE TABLE mirror.trajectories (
    fragment BIGINT, address UBIGINT, episode_id VARCHAR, ingest_key VARCHAR, commit_id VARCHAR,
    source VARCHAR, dataset VARCHAR, embodiment VARCHAR, spec_id VARCHAR, num_steps INTEGER,
    fps DOUBLE, duration_ns BIGINT, cameras VARCHAR[], camera_bytes BIGINT[],
    camera_codecs VARCHAR[], camera_widths INTEGER[], camera_heights INTEGER[],
    camera_frames INTEGER[], camera_missing_steps INTEGER[], camera_key_frames INTEGER[],
    features VARCHAR[], format VARCHAR, source_files VARCHAR[], locator VARCHAR, reader VARCHAR,
    alignment VARCHAR, findings VARCHAR[]
);
CREATE TABLE mirror.commits (
    fragment BIGINT, address UBIGINT, ingest_key VARCHAR, commit_id VARCHAR, time_ns BIGINT
);
CREATE TABLE mirror.episodes (
    fragment BIGINT, address UBIGINT, episode_id VARCHAR, task VARCHAR, instruction VARCHAR,
    success BOOLEAN, quality DOUBLE, split VARCHAR, tags VARCHAR[], label_version INTEGER
);
CREATE TABLE mirror.specs (
    fragment BIGINT, address UBIGINT, spec_id VARCHAR, spec_json VARCHAR
);
CREATE TABLE mirror.stats (
    fragment BIGINT, address UBIGINT, episode_id VARCHAR, feature VARCHAR, spec_id VARCHAR,
    count BIGINT, invalid BIGINT, min DOUBLE[], max DOUBLE[], mean DOUBLE[], m2 DOUBLE[]
);
CREATE TABLE mirror.quarantine (
    fragment BIGINT, address UBIGINT, source VARCHAR, dataset VARCHAR, episode VARCHAR,
    stream VARCHAR, reason VARCHAR, detail VARCHAR, time_ns BIGINT
);
CREATE TABLE mirror.selections (
    fragment BIGINT, address UBIGINT, selection_hash VARCHAR, name VARCHAR, sql VARCHAR,
    episode_ids VARCHAR[], num_episodes BIGINT, versions_json VARCHAR, time_ns BIGINT
);
CREATE TABLE mirror.plans (
    fragment BIGINT, address UBIGINT, plan_hash VARCHAR, name VARCHAR, selection_hash VARCHAR,
    location VARCHAR, header_json VARCHAR, versions_json VARCHAR, time_ns BIGINT
);
CREATE TABLE mirror.runs (
    fragment BIGINT, address UBIGINT, run_id VARCHAR, plan_hash VARCHAR, name VARCHAR,
    out_dir VARCHAR, config_json VARCHAR, versions_json VARCHAR, time_ns BIGINT
);
CREATE TABLE mirror.evaluations (
    fragment BIGINT, address UBIGINT, evaluation_id VARCHAR, run_id VARCHAR, checkpoint VARCHAR,
    task VARCHAR, episodes BIGINT, successes BIGINT, wilson_low DOUBLE, wilson_high DOUBLE,
    detail_json VARCHAR, time_ns BIGINT
);

CREATE TABLE mirror.edits (
    fragment BIGINT, address UBIGINT, edit VARCHAR, kind VARCHAR, who VARCHAR, why VARCHAR,
    time_ns BIGINT, episode_ids VARCHAR[], hidden VARCHAR[], shown VARCHAR[], views VARCHAR[],
    detail_json VARCHAR
);

CREATE MACRO utc(ns) AS make_timestamp(ns // 1000);

-- Rows that a store applied twice (the reply to a commit got lost): all copies but the first.
CREATE TABLE mirror.doubled (ingest_key VARCHAR, address UBIGINT);

-- Stored: the ledger row of the ingest key names the commit that wrote the row.
CREATE VIEW mirror.stored AS
SELECT t.* EXCLUDE (fragment), c.time_ns AS ingested_ns
FROM mirror.trajectories AS t
JOIN mirror.commits AS c ON c.ingest_key = t.ingest_key AND c.commit_id = t.commit_id
ANTI JOIN mirror.doubled AS d ON d.address = t.address;

-- Episodes that edits made of the steps of stored ones: the last of each id, while those are there.
CREATE VIEW mirror.made_by_edits AS
WITH written AS (
    SELECT edit, time_ns, unnest(views) AS view FROM mirror.edits
), parsed AS (
    SELECT edit, time_ns AS ingested_ns, json_transform_strict(view, '{
        "address": "UBIGINT", "episode_id": "VARCHAR", "ingest_key": "VARCHAR",
        "commit_id": "VARCHAR", "source": "VARCHAR", "dataset": "VARCHAR", "embodiment": "VARCHAR",
        "spec_id": "VARCHAR", "num_steps": "INTEGER", "fps": "DOUBLE", "duration_ns": "BIGINT",
        "cameras": ["VARCHAR"], "camera_bytes": ["BIGINT"], "camera_codecs": ["VARCHAR"],
        "camera_widths": ["INTEGER"], "camera_heights": ["INTEGER"], "camera_frames": ["INTEGER"],
        "camera_missing_steps": ["INTEGER"], "camera_key_frames": ["INTEGER"],
        "features": ["VARCHAR"], "format": "VARCHAR", "source_files": ["VARCHAR"],
        "locator": "VARCHAR", "reader": "VARCHAR", "alignment": "VARCHAR", "findings": ["VARCHAR"],
        "parts": [{"ingest_key": "VARCHAR", "commit_id": "VARCHAR"}]}') AS v
    FROM written
), latest AS (
    SELECT edit, ingested_ns, unnest(v) FROM parsed
    QUALIFY row_number() OVER (PARTITION BY v.episode_id ORDER BY edit DESC) = 1
), lost AS (
    SELECT DISTINCT p.episode_id
    FROM (SELECT episode_id, unnest(parts) AS part FROM latest) AS p
    ANTI JOIN mirror.stored AS s
    ON s.ingest_key = p.part.ingest_key AND s.commit_id = p.part.commit_id
)
SELECT * EXCLUDE (edit, parts) FROM latest ANTI JOIN lost USING (episode_id);

-- Hidden: the last edit that says so of an episode hid it.
CREATE VIEW mirror.hidden_by_edits AS
WITH said AS (
    SELECT edit, unnest(hidden) AS episode_id, true AS hides FROM mirror.edits
    UNION ALL SELECT edit, unnest(shown), false FROM mirror.edits
)
SELECT episode_id, edit FROM (
    SELECT * FROM said QUALIFY row_number() OVER (PARTITION BY episode_id ORDER BY edit DESC) = 1
) WHERE hides;

-- What these two say, kept by the refresh: few rows, where working them out reads every episode.
CREATE TABLE mirror.made AS FROM mirror.made_by_edits;
CREATE TABLE mirror.hidden AS FROM mirror.hidden_by_edits;

CREATE VIEW mirror.known AS
SELECT
    *,
    -- A source without a clock has its steps numbered: stamps 0, 1, 2, ... are no nanoseconds.
    CASE WHEN num_steps = 1 OR duration_ns <> num_steps - 1 THEN duration_ns END AS timed_ns
FROM (SELECT * FROM mirror.stored UNION ALL BY NAME SELECT * FROM mirror.made);

CREATE VIEW mirror.visible AS
SELECT k.* FROM mirror.known AS k ANTI JOIN mirror.hidden AS h ON h.episode_id = k.episode_id;

CREATE VIEW episodes AS
SELECT
    v.episode_id, v.dataset, v.source, v.embodiment, v.spec_id,
    v.num_steps, v.fps, v.timed_ns / 1e9 AS duration_s,
    l.task, l.instruction, l.success, l.quality, l.split, l.tags,
    v.cameras, len(v.cameras) AS num_cameras,
    coalesce(list_sum(v.camera_bytes), 0)::BIGINT AS video_bytes,
    list_transform(v.features, lambda f: split_part(f, ':', 1)) AS features, v.format, v.findings, len(coalesce(v.findings, [])) AS num_findings,
    v.source_files, v.locator, v.reader, v.alignment,
    l.label_version, utc(v.ingested_ns) AS ingested_at
FROM mirror.visible AS v
LEFT JOIN mirror.episodes AS l ON l.episode_id = v.episode_id;

CREATE VIEW cameras AS
SELECT
    episode_id, dataset, unnest(cameras) AS camera, unnest(camera_codecs) AS codec,
    unnest(camera_widths) AS width, unnest(camera_heights) AS height,
    num_steps, unnest(camera_frames) AS frames, unnest(camera_missing_steps) AS missing_steps,
    unnest(camera_key_frames) AS key_frames, unnest(camera_bytes) AS bytes
FROM mirror.visible;

CREATE VIEW specs AS
SELECT
    spec_id,
    json_transform(spec_json -> 'features', '[{"name": "VARCHAR", "source_name": "VARCHAR",
        "dtype": "VARCHAR", "shape": ["INTEGER"], "names": ["VARCHAR"], "units": "JSON",
        "role": "VARCHAR"}]') AS features,
    json_transform(spec_json -> 'cameras', '[{"name": "VARCHAR", "source_name": "VARCHAR",
        "height": "INTEGER", "width": "INTEGER", "is_depth": "BOOLEAN"}]') AS cameras,
    spec_json -> 'slices' AS slices,
    spec_json -> 'conventions' AS conventions
FROM mirror.specs;

CREATE VIEW features AS
WITH declared AS (
    SELECT spec_id, unnest(features) AS f FROM specs
)
SELECT
    s.episode_id, s.feature, d.f.role AS role, d.f.dtype AS dtype,
    coalesce(list_product(d.f.shape), 1)::INTEGER AS size, d.f.names AS names,
    s.count, s.invalid, s.min, s.max, s.mean,
    list_transform(s.m2, lambda m: sqrt(m / nullif(s.count, 0))) AS std
FROM mirror.stats AS s
JOIN mirror.visible AS v ON v.episode_id = s.episode_id
LEFT JOIN declared AS d ON d.spec_id = s.spec_id AND d.f.name = s.feature;

CREATE VIEW tasks AS
SELECT
    dataset, task, instruction, count(*) AS episodes, sum(num_steps)::BIGINT AS steps,
    count(*) FILTER (success) AS successes, count(success) AS judged
FROM episodes GROUP BY ALL;

-- Sums of whole nanoseconds: a sum of floats would depend on the order of the rows.
CREATE VIEW datasets AS
SELECT
    dataset, count(*) AS episodes, sum(num_steps)::BIGINT AS steps,
    sum(timed_ns) / 3.6e12 AS hours,
    sum(coalesce(list_sum(camera_bytes), 0))::BIGINT AS video_bytes,
    list_sort(list(DISTINCT embodiment)) AS embodiments, list_sort(list(DISTINCT format)) AS formats,
    list_sort(list_distinct(flatten(list(cameras)))) AS cameras,
    sum(len(coalesce(findings, [])))::BIGINT AS findings
FROM mirror.visible GROUP BY dataset;

CREATE VIEW quarantine AS
SELECT source, dataset, episode, stream, reason, detail, utc(time_ns) AS quarantined_at
FROM mirror.quarantine;

CREATE VIEW edits AS
SELECT
    edit::BIGINT AS edit, kind, who, why, utc(time_ns) AS edited_at, episode_ids, hidden, shown,
    detail_json::JSON AS detail
FROM mirror.edits;

CREATE VIEW hidden_episodes AS
SELECT
    k.episode_id, k.dataset, k.source, k.embodiment, k.num_steps, l.task, l.instruction, l.success,
    l.quality, l.split, l.tags, k.source_files, k.locator, e.edit, e.kind, e.who, e.why,
    e.edited_at AS hidden_at
FROM mirror.hidden AS h
JOIN mirror.known AS k ON k.episode_id = h.episode_id
JOIN edits AS e ON e.edit = h.edit::BIGINT
LEFT JOIN mirror.episodes AS l ON l.episode_id = h.episode_id;

CREATE VIEW selections AS
SELECT
    name, selection_hash, sql, num_episodes, episode_ids, versions_json::JSON AS versions,
    utc(time_ns) AS created_at
FROM mirror.selections;

-- The documents of plans, runs and evaluations belong to those who write them: the columns here are
-- NULL where a document says nothing of them, and `detail`, the last one, is all of it.
CREATE VIEW plans AS
SELECT
    name, plan_hash, utc(time_ns) AS created_at,
    try_cast(d ->> '$.num_spans' AS BIGINT) AS spans,
    try_cast(d ->> '$.num_steps' AS BIGINT) AS steps,
    try_cast(d ->> '$.settings.slots_per_step' AS INTEGER) AS slots_per_step,
    try_cast(d ->> '$.settings.epochs' AS INTEGER) AS epochs,
    try_cast(d ->> '$.settings.budget_tokens' AS BIGINT) AS budget_tokens,
    try_cast(d ->> '$.quality.padding' AS DOUBLE) AS padding,
    try_cast(d ->> '$.certificate.packs' AS BIGINT)
        - try_cast(d ->> '$.certificate.bound' AS BIGINT) AS packs_over_bound,
    selection_hash, location, versions_json::JSON AS versions, d AS detail
FROM (SELECT *, header_json::JSON AS d FROM mirror.plans);

CREATE VIEW runs AS
SELECT
    run_id, name, plan_hash, utc(time_ns) AS started_at,
    try_cast(d ->> '$.seed' AS BIGINT) AS seed,
    try_cast(d ->> '$.optimizer.lr' AS DOUBLE) AS learning_rate,
    out_dir, versions_json::JSON AS versions, d AS detail
FROM (SELECT *, config_json::JSON AS d FROM mirror.runs);

CREATE VIEW evaluations AS
SELECT
    evaluation_id, run_id, checkpoint, task, episodes, successes,
    successes / nullif(episodes, 0) AS success_rate, wilson_low, wilson_high,
    utc(time_ns) AS evaluated_at, detail_json::JSON AS detail
FROM mirror.evaluations;

-- From an evaluation back to the selection its policy was trained on, and everything between.
CREATE VIEW lineage AS
SELECT
    e.evaluation_id, e.task, e.success_rate, e.checkpoint, run_id, r.out_dir,
    plan_hash, p.name AS plan, p.selection_hash, s.name AS selection, s.sql AS selection_sql,
    s.num_episodes, p.versions AS lake_versions
FROM evaluations AS e
FULL JOIN runs AS r USING (run_id)
FULL JOIN plans AS p USING (plan_hash)
LEFT JOIN selections AS s ON s.selection_hash = p.selection_hash;
