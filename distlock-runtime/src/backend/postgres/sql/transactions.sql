-- Records that are claimed and settled inside of an application's own transaction. All arguments are bytea, text or bigint and the one
-- value that comes back is a bytea, so that every client can call them.

-- 'n' and the fence (8 bytes): it is new, and ours until the transaction ends. 'b': another transaction has it. Else the state (i, c, t,
-- u), the fingerprint's version (4 bytes), the fingerprint (32) and the result.
-- Until it is settled the record says that nobody knows the outcome: a transaction that commits without settling ran something. The
-- time at which its transaction began stands in lease_until, by which that one knows it again.
create or replace function distlock.tx_claim(
  p_namespace text, p_key bytea, p_owner text, p_version bigint, p_fingerprint bytea, p_wait bigint, p_retain bigint,
  p_scope bytea, p_note text
) returns bytea language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  r distlock.record;
  v_turn bigint := hashtextextended(distlock.record_turn(p_key), hashtext(p_namespace));
  v_now timestamptz;
  v_until timestamptz;
  v_fence bigint;
  v_before text;
begin
  -- Without taking turns: what is finished needs no lock, and no transaction waits for another that only reads it.
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key;
  if r.state = 'c' and r.kept_until > clock_timestamp() then
    return distlock.tx_shown(r);
  end if;

  if not pg_try_advisory_xact_lock(v_turn) then
    if p_wait = 0 then return 'b'::bytea; end if;
    v_before := current_setting('lock_timeout');
    begin
      -- The most that the server takes: some weeks.
      perform set_config('lock_timeout', least(p_wait, 2147483647) || 'ms', true);
      perform pg_advisory_xact_lock(v_turn);
      perform set_config('lock_timeout', v_before, true);
    exception when lock_not_available then
      -- The setting goes back with what was done here.
      return 'b'::bytea;
    end;
  end if;

  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key;
  v_now := clock_timestamp();
  if r.kept_until > v_now then
    if r.state = 'u' and r.lease_until = transaction_timestamp() then
      -- Asked again by the same claim, or by another one of this transaction.
      return case when r.owner = p_owner then 'n'::bytea || int8send(r.fence) else 'b'::bytea end;
    end if;
    return distlock.tx_shown(r);
  end if;
  v_until := v_now + p_retain * interval '1 millisecond';
  insert into distlock.record as t
    (namespace, key, state, owner, fence, fingerprint_version, fingerprint, taken_over, lease_until, kept_until, sweep_at, retain,
     scope, note)
    values (p_namespace, p_key, 'u', p_owner, nextval('distlock.token'), p_version, p_fingerprint, false, transaction_timestamp(),
      v_until, v_until, p_retain, nullif(p_scope, ''), p_note)
    on conflict (namespace, key) do update set
      state = excluded.state, owner = excluded.owner, fence = excluded.fence, fingerprint_version = excluded.fingerprint_version,
      fingerprint = excluded.fingerprint, taken_over = excluded.taken_over, lease_until = excluded.lease_until,
      kept_until = excluded.kept_until, sweep_at = excluded.sweep_at, retain = excluded.retain, scope = excluded.scope,
      note = excluded.note, result = excluded.result, watchers = '{}'
    where t.kept_until <= clock_timestamp()
    returning fence into v_fence;
  if v_fence is null then return 'b'::bytea; end if;
  return 'n'::bytea || int8send(v_fence);
end $$;

create or replace function distlock.tx_shown(r distlock.record) returns bytea
language sql set search_path = pg_catalog, pg_temp as $$
  select convert_to((r).state::text, 'UTF8') || int4send((r).fingerprint_version) || (r).fingerprint || (r).result
$$;

-- New state c, t, or r to forget. 'y': settled so, now or by an earlier try | 'n': it isn't this claim's record.
create or replace function distlock.tx_settle(
  p_namespace text, p_key bytea, p_owner text, p_fence bigint, p_state text, p_retain bigint, p_result bytea
) returns bytea language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  r distlock.record;
begin
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key for update;
  if r.key is null or r.owner <> p_owner or r.fence <> p_fence or r.lease_until <> transaction_timestamp() then
    return 'n'::bytea;
  end if;
  if r.state <> 'u' then
    return case when r.state::text = p_state and r.result = p_result then 'y'::bytea else 'n'::bytea end;
  end if;
  perform distlock.record_end(r, p_state, p_retain, p_result);
  return 'y'::bytea;
end $$;
