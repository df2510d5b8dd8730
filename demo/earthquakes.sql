-- An ordinary table …
CREATE TABLE earthquakes (
    seq        integer,
    event_id   text PRIMARY KEY,
    event_ts   timestamptz,
    updated_ts timestamptz,
    net        text,
    mag        numeric,
    mag_type   text,
    kind       text,
    status     text,
    lon        double precision,
    lat        double precision,
    depth_km   double precision,
    place      text
);

-- … and a stream over it. A window is finished when a quake two days younger than its end has been reported;
-- what is reported later still goes to the table of late rows.
SELECT wmstream.create_stream('quakes_by_hour', $$
    SELECT lower(w) AS hour, net, count(*) AS quakes, max(mag) AS greatest
    FROM   earthquakes, wmstream.window(event_ts, '1 hour') AS w
    WHERE  wmstream.watermark(event_ts, '2 days')
    GROUP  BY w, net
$$, late_table => 'quakes_late');
