-- Nothing is left for ever.

-- Takes away what is over, at most so many rows of a kind and not more than once in half a minute, whoever asks.
create or replace function distlock.purge_locks(p_most bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := clock_timestamp();
  v_count bigint := 0;
  v_more bigint;
begin
  insert into distlock.upkeep (task, done_at) values ('locks', '-infinity') on conflict do nothing;
  perform from distlock.upkeep u
  where u.task = 'locks' and u.done_at not between v_now - interval '30 seconds' and v_now for update skip locked;
  if not found then
    return 0;
  end if;
  update distlock.upkeep u set done_at = v_now where u.task = 'locks';
  delete from distlock.lease where ctid = any (array(
    select l.ctid from distlock.lease l where l.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_more = row_count;
  v_count := v_count + v_more;
  delete from distlock.waiter where ctid = any (array(
    select w.ctid from distlock.waiter w where w.live_until < v_now limit p_most for update skip locked));
  get diagnostics v_more = row_count;
  v_count := v_count + v_more;
  delete from distlock.tombstone where ctid = any (array(
    select t.ctid from distlock.tombstone t where t.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_more = row_count;
  v_count := v_count + v_more;
  delete from distlock.latch where ctid = any (array(
    select c.ctid from distlock.latch c where c.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_more = row_count;
  v_count := v_count + v_more;
  -- Left by sessions that ended. Whether one is held on is known to the server alone.
  delete from distlock.holder where ctid = any (array(
    select h.ctid from distlock.holder h
    where h.expires_at < v_now - interval '1 minute' and not distlock.is_held(h.key) limit least(p_most, 100)
    for update skip locked));
  get diagnostics v_more = row_count;
  v_count := v_count + v_more;
  delete from distlock.wait where ctid = any (array(
    select w.ctid from distlock.wait w where w.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_more = row_count;
  return v_count + v_more;
end $$;
