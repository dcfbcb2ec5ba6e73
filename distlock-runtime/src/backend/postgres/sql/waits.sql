-- What the holders of locks wait for.

-- Publishes a wait beside each of the locks that are held meanwhile, or says that it goes on.
create or replace function distlock.publish_wait(
  p_namespaces text[], p_names text[], p_owners text[], p_id text, p_beat bigint, p_raw boolean, p_wanted text, p_who text,
  p_life bigint, p_most bigint
) returns void language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := clock_timestamp();
  v_one record;
begin
  for v_one in
    select k.* from unnest(p_namespaces, p_names, p_owners) as k(namespace, name, owner)
    order by k.namespace collate "C", k.name collate "C"
  loop
    delete from distlock.wait w
    where w.namespace = v_one.namespace and w.name = v_one.name and w.expires_at <= v_now and w.id <> p_id;
    if (select count(*) from distlock.wait w
        where w.namespace = v_one.namespace and w.name = v_one.name and w.id <> p_id) < p_most then
      insert into distlock.wait as w (namespace, name, id, beat, owner, wanted_raw, wanted, who, expires_at)
      values (v_one.namespace, v_one.name, p_id, p_beat, v_one.owner, p_raw, p_wanted, p_who,
              v_now + p_life * interval '1 millisecond')
      on conflict (namespace, name, id) do update set beat = greatest(w.beat, excluded.beat),
        owner = excluded.owner, wanted_raw = excluded.wanted_raw, wanted = excluded.wanted, who = excluded.who,
        expires_at = excluded.expires_at;
    end if;
  end loop;
end $$;
