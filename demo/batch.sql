-- The same question asked once, of the whole table: all windows up to the watermark $1, without the late rows.
SELECT lower(w) AS hour, net, count(*) AS quakes, max(mag) AS greatest
FROM   earthquakes e, wmstream.window(event_ts, '1 hour') AS w
WHERE  upper(w) <= $1::timestamptz
AND    NOT EXISTS (SELECT FROM quakes_late l WHERE l.row_data ->> 'event_id' = e.event_id)
GROUP  BY w, net
