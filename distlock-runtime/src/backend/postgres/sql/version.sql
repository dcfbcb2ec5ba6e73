-- From before migration 3, when there were no plain locks: what programs of that time are in the middle of ends with an error that makes them begin anew,
-- and what they left is known to be elsewhere.
drop function if exists distlock.settle(text, text, timestamptz);
drop function if exists distlock.obstacle(text, text, text, text, bigint, timestamptz);
drop function if exists distlock.hold(text, text, text, text, text, bigint, bigint, text, timestamptz);
insert into distlock.plain (namespace, name, owner, label, expires_at, elsewhere, elsewhere_until)
select o.namespace, o.name, '', '', clock_timestamp(), true, '-infinity' from (
  select l.namespace, l.name from distlock.lease l
  union select w.namespace, w.name from distlock.waiter w
  union select c.namespace, c.name from distlock.latch c
) o
where not exists (select from distlock.migration m where m.version >= 3)
on conflict do nothing;
-- Says that all of the above is there: the last statement.
insert into distlock.migration (version, oldest) values (3, 1) on conflict do nothing;
