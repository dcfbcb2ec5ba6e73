-- Says that all of the above is there: the last statement.
insert into distlock.migration (version, oldest) values (2, 1) on conflict do nothing;
