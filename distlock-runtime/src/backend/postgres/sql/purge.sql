-- Nothing is left for ever.

-- Takes away what is over, at most so many rows of a kind and not more than once in half a minute, whoever asks, but for who goes on
-- because there was more. Whether there is more. Waits for nobody.
create or replace function distlock.purge_locks(p_most bigint, p_more boolean) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := clock_timestamp();
  v_is_more boolean := false;
  v_count bigint;
  v_rows tid[];
begin
  insert into distlock.upkeep (task, done_at) values ('locks', '-infinity') on conflict do nothing;
  perform from distlock.upkeep u
  where u.task = 'locks' and (p_more or u.done_at not between v_now - interval '30 seconds' and v_now) for update skip locked;
  if not found then
    return false;
  end if;
  update distlock.upkeep u set done_at = v_now where u.task = 'locks';
  delete from distlock.lease where ctid = any (array(
    select l.ctid from distlock.lease l where l.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  delete from distlock.waiter where ctid = any (array(
    select w.ctid from distlock.waiter w where w.live_until < v_now limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  delete from distlock.tombstone where ctid = any (array(
    select t.ctid from distlock.tombstone t where t.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  delete from distlock.latch where ctid = any (array(
    select c.ctid from distlock.latch c where c.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  delete from distlock.wait where ctid = any (array(
    select w.ctid from distlock.wait w where w.expires_at < v_now limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  -- What is used again within a minute is changed in place.
  delete from distlock.plain where ctid = any (array(
    select p.ctid from distlock.plain p where not p.elsewhere and p.expires_at < v_now - interval '1 minute'
    limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  -- While these rows are ours nobody else works on the locks. What is there is seen by a statement that begins after that.
  v_rows := array(
    select p.ctid from distlock.plain p
    where p.elsewhere and p.elsewhere_until < v_now and p.expires_at < v_now - interval '1 minute'
      and not exists (select from distlock.lease l where l.namespace = p.namespace and l.name = p.name)
      and not exists (select from distlock.waiter w where w.namespace = p.namespace and w.name = p.name)
      and not exists (select from distlock.latch c where c.namespace = p.namespace and c.name = p.name)
    limit p_most for update skip locked);
  delete from distlock.plain p where p.ctid = any (v_rows)
    and not exists (select from distlock.lease l where l.namespace = p.namespace and l.name = p.name)
    and not exists (select from distlock.waiter w where w.namespace = p.namespace and w.name = p.name)
    and not exists (select from distlock.latch c where c.namespace = p.namespace and c.name = p.name);
  v_is_more := v_is_more or cardinality(v_rows) >= p_most;
  delete from distlock.holder where ctid = any (array(
    select h.ctid from distlock.holder h where h.owner = '' and h.expires_at < v_now - interval '1 minute'
    limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  v_is_more := v_is_more or v_count >= p_most;
  -- Left by sessions that ended. Whether one is held on is known to the server alone, which is asked for few of them.
  delete from distlock.holder where ctid = any (array(
    select h.ctid from distlock.holder h
    where h.expires_at < v_now - interval '1 minute' and not distlock.is_held(h.key) limit least(p_most, 100)
    for update skip locked));
  return v_is_more;
end $$;
-- For programs of before.
create or replace function distlock.purge_locks(p_most bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  perform distlock.purge_locks(p_most, false);
  return 0;
end $$;
