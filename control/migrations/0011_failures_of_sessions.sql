-- From which sessions the failures of a row came: a JSON list, as many as its threshold asks for.
ALTER TABLE failure_rows ADD COLUMN sessions TEXT NOT NULL DEFAULT '[]';
