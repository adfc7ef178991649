#!/usr/bin/python3
"""Runs the same commands on a real Ceph 16.2 and on ours and compares: exit codes, the keys of
JSON outputs at every depth, and the words of plain outputs (numbers, ids and times left out).

    tests/interop/compare.py [--verbose] [WORD ...]     only commands that contain all WORDs

Each command runs on both at the same time. What only looks at the cluster and differs is asked
again for a while, for states, statistics and health come with time, and not at the same time on both.

Exit code 1 when something differs that is not named in DIFFERENT."""
import functools
import re
import sys

import comparison

# Each line runs on both, in order, once as it stands and once more with -f json if it begins
# with "J ". Lines that begin with "- " are only for their effect.
COMMANDS = """
J ceph health
J ceph health detail
- ceph osd pool create p1 8 8
- ceph osd pool application enable p1 rados
- settle
J ceph status
J ceph df
J ceph df detail
J ceph osd tree
J ceph osd dump
J ceph osd stat
J ceph osd df
J ceph osd df tree
J ceph osd ls
J ceph osd find 0
J ceph osd metadata 0
J ceph osd getmaxosd
J ceph osd lspools
J ceph osd pool ls
J ceph osd pool ls detail
J ceph osd pool get p1 all
J ceph osd pool get p1 size
J ceph osd pool stats
J ceph osd pool get-quota p1
J ceph osd pool application get
J ceph osd map p1 thing
J ceph osd crush rule ls
J ceph osd crush rule dump
J ceph osd crush tree
J ceph osd crush dump
J ceph osd crush class ls
J ceph osd blocklist ls
J ceph osd erasure-code-profile ls
J ceph osd perf
J ceph osd versions
J ceph osd utilization
J ceph osd blocked-by
ceph osd out 2
J ceph osd dump
ceph osd in 2
J ceph tell osd.0 dump_pgstate_history
ceph osd reweight 1 0.9
ceph osd reweight 1 1
ceph osd set noout
J ceph health detail
ceph osd unset noout
ceph osd set bogus
ceph osd pool create p1
ceph osd pool create expects 8 8 replicated replicated_rule 1000
ceph osd pool create expects2 8 8 replicated replicated_rule many
- ceph osd pool rm expects expects --yes-i-really-really-mean-it
ceph osd pool create p2 16
ceph osd pool rename p2 p3
ceph osd pool set p3 size 2
ceph osd pool set p3 min_size 1
ceph osd pool set p3 bogus 1
ceph osd pool set p3 compression_required_ratio 1.1
ceph osd pool set p3 compression_required_ratio -.2
ceph osd pool set p3 nosizechange 1
ceph osd pool set p3 size 3
ceph osd pool set p3 min_size 2
ceph osd pool set p3 nosizechange 0
- ceph config set mon mon_max_pg_per_osd 1
ceph osd pool set p3 size 3
ceph osd pool set p3 size 2
- ceph config rm mon mon_max_pg_per_osd
ceph osd pool set-quota p3 max_objects 10
J ceph osd pool get-quota p3
ceph osd pool mksnap p3 s1
ceph osd pool mksnap p3 s1
ceph osd pool rmsnap p3 s1
ceph osd pool delete p3
ceph osd pool delete p3 p3 --yes-i-really-really-mean-it
ceph osd pool delete p3 p3 --yes-i-really-really-mean-it
ceph osd blocklist add 10.9.8.7:0/123 100
J ceph osd blocklist ls
ceph osd blocklist rm 10.9.8.7:0/123
J ceph auth ls
J ceph auth get client.admin
ceph auth get client.nobody
J ceph auth get-or-create client.t mon 'allow r' osd 'allow rw pool=p1'
ceph auth caps client.t mon 'allow r'
J ceph auth get client.t
ceph auth print-key client.nobody
ceph auth rm client.t
ceph config set mgr mgr/balancer/active maybe
ceph config set mgr mgr/balancer/active 0
J ceph config get mgr mgr/balancer/active
ceph config set mgr mgr/balancer/mode bogus
ceph config set mgr mgr/balancer/upmap_max_deviation abc
ceph config set mgr mgr/balancer/sleep_interval 1k
ceph config set mgr mgr/crash/warn_recent_interval x
ceph config set mgr mgr/balancer/bogus 1
ceph config set mgr mgr/bogus/x 1
- ceph config set mgr mgr/prometheus/rbd_stats_pools p
ceph config dump
ceph config rm mgr mgr/balancer/active
ceph config rm mgr mgr/prometheus/rbd_stats_pools
J ceph config get mgr mgr/balancer/bogus
J ceph config help mgr/balancer/mode
J ceph config set osd.0 osd_max_backfills 3
J ceph config dump
J ceph config get osd.0
J ceph config get osd.0 osd_max_backfills
J ceph config log
J ceph config show osd.0
ceph config rm osd.0 osd_max_backfills
ceph config set osd.0 no_such_option 1
ceph config set osd.0 osd_max_backfills abc
ceph config-key set k v
ceph config-key get k
J ceph config-key ls
J ceph config-key dump
ceph config-key exists nope
ceph config-key get nope
ceph config-key rm k
J ceph mon dump
J ceph mon stat
J ceph mon metadata
J ceph mgr dump
J ceph mgr stat
J ceph mgr metadata
J ceph mgr services
J ceph versions
J ceph features
J ceph fsid
J ceph quorum_status
J ceph node ls
J ceph time-sync-status
J ceph log last 3
J ceph pg stat
J ceph pg dump
J ceph pg dump pgs_brief
J ceph pg dump pools
J ceph pg dump osds
J ceph pg dump sum
J ceph pg ls
J ceph pg ls-by-pool p1
J ceph pg ls-by-osd 0
J ceph pg map 1.0
J ceph pg dump_stuck
J ceph tell osd.0 version
J ceph tell osd.0 config get osd_max_backfills
J ceph tell osd.0 perf dump osd
J ceph tell osd.0 dump_ops_in_flight
J ceph tell osd.0 dump_historic_ops
J ceph tell osd.0 status
J ceph tell mon.a version
J ceph tell mon.a perf dump mon
J ceph tell mon.a perf dump cluster
J ceph tell mon.a perf dump paxos
J ceph tell mon.a perf schema
ceph tell mon.a perf reset mon
ceph tell mon.a perf reset bogus
ceph tell mgr.x perf reset bogus
J ceph config show mon.a
J ceph fs ls
J ceph fs dump
J ceph mds stat
J ceph service dump
ceph bogus
ceph osd bogus
ceph osd pool create
ceph osd find 99
ceph osd crush rule dump nope
ceph osd map nopool x
rados -p p1 put obj /etc/hostname
rados -p p1 ls
J rados df
rados lspools
rados -p p1 stat nope
rados -p p1 rm nope
rados -p nopool ls
rados -p p1 setxattr obj a b
rados -p p1 listxattr obj
rados -p p1 getxattr obj a
rados -p p1 setomapval obj k v
rados -p p1 listomapvals obj
rados -p p1 mksnap snap
rados -p p1 lssnap
rados -p p1 listsnaps obj
rados -p p1 rollback obj snap
rados -p p1 rmsnap snap
rados -p p1 lock get obj lk
rados -p p1 lock list obj
rados -p p1 listwatchers obj
ceph osd getcrushmap -o /dev/null
ceph osd getmap -o /dev/null
ceph mon getmap -o /dev/null
J ceph osd tree-from default
J ceph osd tree-from nowhere
J ceph osd tree up
J ceph osd tree down
J ceph osd dump 1
J ceph osd dump 9999
J ceph osd info
J ceph osd info 0
J ceph osd numa-status
J ceph osd ok-to-stop 0
J ceph osd ok-to-stop 0 1 2
J ceph osd ok-to-stop 0 --max 3
J ceph osd safe-to-destroy 0
ceph osd ok-to-stop 77
J ceph osd count-metadata hostname
J ceph osd get-require-min-compat-client
J ceph osd df tree name default
J ceph osd df name nowhere
J ceph osd pool autoscale-status
J ceph osd test-reweight-by-utilization
J ceph osd test-reweight-by-pg
ceph osd test-reweight-by-pg 99
ceph osd test-reweight-by-utilization 120 -1
J ceph osd perf
J ceph osd last-stat-seq 0
J ceph osd lspools
J ceph osd crush show-tunables
J ceph osd crush get-tunable straw_calc_version
ceph osd crush set-tunable straw_calc_version 1
ceph osd crush tunables optimal
ceph osd crush tunables bogus
J ceph osd crush ls default
J ceph osd crush ls nowhere
ceph osd crush add-bucket b1 host
ceph osd crush add-bucket b1 host
ceph osd crush add-bucket b2 nonsense
ceph osd crush add-bucket r1 root
ceph osd crush move b1 root=default
ceph osd crush move nowhere root=default
ceph osd crush link b1 root=r1
ceph osd crush unlink b1 r1
ceph osd crush unlink b1 r1
ceph osd crush set osd.0 1.0 root=default host=b1
ceph osd crush create-or-move osd.0 1.0 root=default host=b1
ceph osd crush set osd.77 1.0 root=default host=b1
ceph osd crush add osd.0 1.5 root=default host=b1
ceph osd crush reweight osd.0 0.5
ceph osd crush reweight osd.77 0.5
ceph osd crush reweight osd.0 1e9
ceph osd crush reweight b1 0.5
ceph osd crush reweight-subtree b1 0.7
ceph osd crush reweight-subtree nowhere 0.7
ceph osd crush reweight-all
J ceph osd crush tree
J ceph osd tree
ceph osd crush rename-bucket b1 b3
ceph osd crush rename-bucket nowhere b4
ceph osd crush rm b3
ceph osd crush rm nowhere
ceph osd crush swap-bucket b3 r1
ceph osd crush swap-bucket b3 r1 --yes-i-really-mean-it
ceph osd crush move osd.0 root=default host=b5
ceph osd crush rm r1
J ceph osd crush dump
ceph osd crush rule create-simple rule1 default osd
ceph osd crush rule create-simple rule1 default osd
ceph osd crush rule create-simple rule2 nowhere osd
ceph osd crush rule create-replicated rule3 default osd
ceph osd crush rule create-replicated rule4 default nonsense
ceph osd crush rule rename rule3 rule5
ceph osd crush rule rename nope rule6
J ceph osd crush rule ls
J ceph osd crush rule dump rule5
ceph osd crush rule rm rule5
ceph osd crush rule rm rule5
ceph osd crush rule rm replicated_rule
ceph osd crush class create fast
ceph osd crush class create fast
J ceph osd crush class ls
ceph osd crush set-device-class slow osd.0
ceph osd crush rm-device-class osd.0 osd.1
ceph osd crush set-device-class slow osd.0 osd.1
J ceph osd crush class ls-osd slow
J ceph osd crush get-device-class osd.0 osd.1
ceph osd crush get-device-class osd.77
ceph osd crush rule create-replicated onslow default osd slow
J ceph osd crush rule ls-by-class slow
ceph osd crush class rename slow slower
J ceph osd crush tree --show-shadow
ceph osd crush class rm slower
ceph osd crush rule rm onslow
ceph osd erasure-code-profile set onfast k=2 m=1 crush-device-class=fast
ceph osd crush class rm fast
ceph osd erasure-code-profile rm onfast
ceph osd crush class rm fast
ceph osd crush class rm nosuch
J ceph osd crush weight-set ls
ceph osd crush weight-set create-compat
J ceph osd crush weight-set dump
J ceph osd crush weight-set ls
ceph osd crush weight-set reweight-compat osd.0 0.5
ceph osd crush weight-set rm-compat
ceph osd crush weight-set create p1 flat
ceph osd crush weight-set reweight p1 osd.0 0.5
ceph osd crush weight-set create nopool flat
ceph osd crush weight-set rm p1
ceph osd crush set-all-straw-buckets-to-straw2
ceph osd set-full-ratio 0.96
ceph osd set-full-ratio 2
ceph osd set-nearfull-ratio 0.86
ceph osd set-backfillfull-ratio 0.91
ceph osd set-require-min-compat-client luminous
ceph osd set-require-min-compat-client bogus
ceph osd set-require-min-compat-client quincy
ceph osd require-osd-release pacific
ceph osd require-osd-release octopus
ceph osd primary-affinity 0 0.5
ceph osd primary-affinity 0 2
ceph osd primary-affinity 77 0.5
ceph osd primary-affinity 0 1
ceph osd pg-upmap-items {p1}.0 0 1
ceph osd pg-upmap-items 99.0 0 1
ceph osd pg-upmap-items {p1}.0 2 2 0 1
ceph osd pg-upmap-items {p1}.0 0 1 1 0 1 2 2 0
ceph osd pg-upmap-items {p1}.0 1 1
ceph osd rm-pg-upmap-items {p1}.0
ceph osd pg-upmap {p1}.0 0 0 1 2
ceph osd pg-upmap {p1}.0 0
ceph osd pg-upmap {p1}.0 0 1 2 0
ceph osd pg-upmap {p1}.0 0 1 2
ceph osd rm-pg-upmap {p1}.0
ceph osd pg-temp {p1}.0 0
ceph osd pg-temp {p1}.0 0 1 2 1
ceph osd pg-temp {p1}.0 0 1 2
ceph osd primary-temp {p1}.0 0
ceph osd primary-temp {p1}.0 -1
ceph osd set-group noout 0 1
J ceph health detail
ceph osd unset-group noout 0 1
ceph osd set-group bogus 0
ceph osd add-noup 0
ceph osd rm-noup 0
ceph osd add-noout 77
ceph osd pause
J ceph osd stat
ceph osd unpause
ceph osd lost 0
ceph osd lost 0 --yes-i-really-mean-it
ceph osd out 77
ceph osd out abc 0
ceph osd in 0
ceph osd out 0
ceph osd out 0
ceph osd in 0
ceph osd down 77
ceph osd rm 0
ceph osd rm 77
ceph osd destroy 0
ceph osd purge 0
ceph osd purge 0 --yes-i-really-mean-it
ceph osd reweight 77 0.5
ceph osd reweight 0 2
ceph osd reweightn {}
ceph osd reweightn nonsense
ceph osd reweightn '{"99":"1"}'
ceph osd new 11111111-2222-3333-4444-555555555555
ceph osd new 11111111-2222-3333-4444-555555555555
ceph osd new nonsense
J ceph osd tree
ceph osd purge-new 3 --yes-i-really-mean-it
ceph osd create
ceph osd rm 3
ceph osd setmaxosd 10
ceph osd setmaxosd 1
ceph osd setmaxosd 3
ceph osd blocklist add 10.9.0.0/16
ceph osd blocklist range add 10.9.0.0/16 100
J ceph osd blocklist ls
ceph osd blocklist range rm 10.9.0.0/16
ceph osd blocklist rm 10.9.8.7:0/1
ceph osd blocklist clear
ceph osd blocklist add nonsense
ceph osd force-create-pg {p1}.0
ceph osd force-create-pg 99.0 --yes-i-really-mean-it
ceph osd scrub 77
ceph osd deep-scrub 0
J ceph osd erasure-code-profile get default
ceph osd erasure-code-profile get nope
ceph osd erasure-code-profile set prof1 k=2 m=1 crush-failure-domain=osd
ceph osd erasure-code-profile set prof1 k=3 m=1 crush-failure-domain=osd
J ceph osd erasure-code-profile get prof1
ceph osd erasure-code-profile rm prof1
ceph osd erasure-code-profile rm prof1
ceph osd erasure-code-profile set prof3 technique=reed_sol_r6_op k=4 m=3
ceph osd erasure-code-profile set prof3 technique=reed_sol_r6_op k=4 w=16
J ceph osd erasure-code-profile get prof3
ceph osd erasure-code-profile rm prof3
ceph osd erasure-code-profile set prof3 technique=cauchy_good k=4 m=3 packetsize=x
ceph osd erasure-code-profile set prof3 technique=cauchy_good k=4 m=3 w=4 packetsize=8 stripe_unit=1024
ceph osd erasure-code-profile set prof3 technique=cauchy_good k=4 m=3 w=4 packetsize=8 stripe_unit=1024 --force
J ceph osd erasure-code-profile get prof3
ceph osd erasure-code-profile set prof4 technique=liberation k=8
ceph osd erasure-code-profile set prof4 technique=liberation packetsize=10
ceph osd erasure-code-profile set prof4 technique=liberation
J ceph osd erasure-code-profile get prof4
ceph osd erasure-code-profile set prof5 technique=blaum_roth w=8
ceph osd erasure-code-profile set prof5 technique=liber8tion k=9
ceph osd erasure-code-profile set prof2 k=2 m=1 stripe_unit=4KiB
ceph osd erasure-code-profile rm default
ceph osd crush rule create-erasure ec_again
- ceph osd crush rule rm ec_again
ceph osd erasure-code-profile rm default
ceph osd pool create ec_again 8 8 erasure
- ceph osd pool rm ec_again ec_again --yes-i-really-really-mean-it
- ceph osd crush rule rm ec_again
J ceph osd pool get p1 min_size
J ceph osd pool get p1 crush_rule
J ceph osd pool get p1 pg_num
J ceph osd pool get p1 nodelete
J ceph osd pool get p1 bogus
J ceph osd pool get p1 compression_mode
J ceph osd pool get nopool size
ceph osd pool set p1 nodelete 1
ceph osd pool delete p1 p1 --yes-i-really-really-mean-it
ceph osd pool set p1 nodelete 0
ceph osd pool set p1 nodelete maybe
ceph osd pool set p1 nopgchange 1
ceph osd pool set p1 pgp_num 4
ceph osd pool set p1 pgp_num_actual 4
ceph osd pool set p1 nopgchange 0
ceph osd pool set p1 pgp_num_actual 0
ceph osd pool set p1 pgp_num_actual 99
ceph osd pool set p1 size 11
ceph osd pool set p1 size 1
ceph osd pool set p1 min_size 9
ceph osd pool set p1 crush_rule nope
ceph osd pool set p1 compression_mode force
ceph osd pool set p1 compression_mode bogus
J ceph osd pool get p1 compression_mode
ceph osd pool set p1 compression_mode unset
ceph osd pool set p1 pg_autoscale_mode warn
ceph osd pool set p1 pg_autoscale_mode off
ceph osd pool set p1 target_size_ratio 0.5
ceph osd pool set p1 target_size_ratio 0
ceph osd pool set p1 recovery_priority -11
ceph osd pool set p1 recovery_priority 11
ceph osd pool set p1 recovery_priority -10
ceph osd pool set p1 recovery_priority 0
ceph osd pool set p1 pg_num_min 1000
ceph osd pool set p1 pg_num_max 1
ceph osd pool set p1 pg_num_max 0
ceph osd pool set p1 pg_num_min 4
ceph osd pool set p1 pg_num 2
ceph osd pool set p1 pg_num_min 0
ceph osd pool set p1 pg_num_max 64
ceph osd pool set p1 pg_num 128
ceph osd pool set p1 pg_num_max 0
ceph osd pool set p1 pg_num 0
ceph osd pool set p1 pg_num 70000
ceph osd pool set nopool size 2
ceph osd pool application enable p1 rbd
ceph osd pool application enable p1 rbd --yes-i-really-mean-it
ceph osd pool application set p1 rados key value
J ceph osd pool application get p1
J ceph osd pool application get p1 rados
J ceph osd pool application get p1 rados key
ceph osd pool application rm p1 rados key
ceph osd pool application disable p1 rbd
ceph osd pool application disable p1 rbd --yes-i-really-mean-it
ceph osd pool application enable nopool x
ceph osd pool rename nopool p9
ceph osd pool rename p1 p1
ceph osd pool create p4 8 8 replicated nope
ceph osd pool create p4 0
ceph osd pool create p4 8 16
ceph osd pool create p4 8 8 bogus
ceph osd pool set-quota p1 max_bytes 10K
ceph osd pool set-quota p1 max_bytes 0
ceph osd pool set-quota p1 max_bytes nonsense
ceph osd pool set-quota p1 max_bytes 10k
ceph osd pool set-quota p1 max_bytes 10KiB
ceph osd pool set-quota p1 max_bytes -1
ceph osd pool set-quota p1 max_objects 10k
ceph osd pool set-quota p1 max_objects 10KB
ceph osd pool set p1 target_size_bytes 1KiB
ceph osd pool set p1 target_size_bytes 8E
ceph osd pool set-quota nopool max_bytes 1
J ceph osd pool stats nopool
ceph osd pool rmsnap p1 nosnap
ceph osd pool mksnap nopool s
J ceph pg dump_json sum
J ceph pg dump_pools_json
J ceph pg dump delta
J ceph pg dump pgs
J ceph pg dump bogus
J ceph pg ls active
J ceph pg ls bogus
J ceph pg ls-by-primary 0
J ceph pg ls-by-primary osd.1
J ceph pg ls-by-osd 77
J ceph pg ls-by-pool nopool
J ceph pg ls {p1}
J ceph pg map 99.0
J ceph pg map nonsense
J ceph pg debug unfound_objects_exist
J ceph pg debug degraded_pgs_exist
J ceph pg dump_stuck inactive
ceph pg scrub {p1}.0
ceph pg scrub 99.0
ceph pg repair {p1}.0
ceph pg force-recovery {p1}.0
ceph pg cancel-force-recovery {p1}.0
ceph pg force-backfill 99.0
ceph pg getmap -o /dev/null
ceph config generate-minimal-conf
ceph config help osd_max_backfills
J ceph config help osd_max_backfills
ceph config help no_such_option
ceph config get osd.0 no_such_option
ceph config get bogus osd_max_backfills
ceph config rm osd.0 no_such_option
ceph config set bogus.0 osd_max_backfills 3
ceph config set osd/class:ssd osd_max_backfills 3
ceph config set global debug_ms 0/0
J ceph config dump
ceph config rm osd/class:ssd osd_max_backfills
ceph config rm global debug_ms
J ceph config log 3
ceph config assimilate-conf -i /dev/null
ceph config reset 999
J ceph config show osd.77
J ceph config show osd.0 osd_max_backfills
J ceph config show mgr.x
J ceph config show bogus
J ceph config show-with-defaults osd.0 osd_max_backfills
ceph tell osd.0 config set osd_max_backfills 5
J ceph tell osd.0 config show
J ceph tell osd.0 config diff
J ceph tell osd.0 config diff get osd_max_backfills
J ceph tell osd.0 config help osd_max_backfills
ceph tell osd.0 config get no_such_option
ceph tell osd.0 config set no_such_option 1
ceph tell osd.0 config unset osd_max_backfills
ceph tell osd.0 injectargs --osd_max_backfills=4
ceph tell osd.0 bogus
ceph tell osd.77 version
ceph tell bogus version
J ceph tell osd.* version
J ceph tell osd.0 dump_osd_network
J ceph tell osd.0 dump_blocklist
J ceph tell osd.0 dump_watchers
J ceph tell osd.0 dump_historic_slow_ops
J ceph tell osd.0 get_mapped_pools
J ceph tell osd.0 perf schema osd
J ceph tell osd.0 flush_pg_stats
J ceph tell osd.0 perf histogram dump osd
J ceph tell osd.0 perf histogram dump osd op_w_latency_in_bytes_histogram
J ceph tell osd.0 perf histogram dump bogus
ceph tell osd.0 heap stats
J ceph tell mon.a perf histogram dump mon
J ceph tell mon.a ops
J ceph tell mon.a dump_historic_ops
J ceph tell mon.a dump_historic_slow_ops
ceph tell mon.a heap stats
ceph tell mon.a quorum exit
ceph tell mon.a quorum enter
J ceph tell mgr.x perf histogram dump mgr
ceph tell mgr.x heap stats
ceph tell osd.0 config set rocksdb_cache_size 64M
ceph tell osd.0 config unset rocksdb_cache_size
ceph tell osd.0 config set filestore_max_sync_interval 2
ceph tell osd.0 config unset filestore_max_sync_interval
ceph tell osd.0 config set debug_osd 100
ceph tell osd.0 injectargs --debug_osd=200
ceph config set osd osd_max_object_size 4GiB
ceph config set osd osd_max_object_size 4k
ceph config set osd osd_max_object_size -1
ceph config set osd osd_max_object_size 16E
ceph config set osd osd_max_object_size 1Bi
ceph config set osd osd_max_object_size 4GB
ceph config set osd osd_max_object_size K
ceph config set osd osd_max_backfills 1k
ceph config set osd osd_max_backfills 1KB
ceph config set osd osd_max_backfills -1
ceph config set osd osd_max_backfills 19E
ceph config set osd osd_max_backfills 1K
ceph config set osd osd_recovery_sleep 1s
ceph config set osd osd_recovery_sleep 1e999
ceph config set osd osd_recovery_sleep abc
ceph config set osd osd_recovery_sleep 0x10
ceph config set osd osd_scrub_auto_repair yes
ceph config set osd osd_scrub_auto_repair 99999999999
ceph config set mgr mgr_tick_period 10secs
ceph config set mgr mgr_tick_period 1.5h
ceph config set mgr mgr_tick_period -1
ceph config set mgr mgr_tick_period 1m30
ceph config set osd debug_osd 100
ceph config set osd debug_osd high
ceph config set osd debug_osd 20/
ceph config set osd cluster_addr host
ceph config set osd cluster_addr 10.0.0.1
ceph config set osd public_addrv nonsense
J ceph config dump
- ceph config rm osd osd_max_object_size
- ceph config rm osd osd_max_backfills
- ceph config rm osd osd_recovery_sleep
- ceph config rm mgr mgr_tick_period
- ceph config rm osd debug_osd
- ceph config rm osd cluster_addr
J ceph tell osd.0 get_latest_osdmap
J ceph tell mgr.x version
J ceph tell mgr.x dump_osd_network
J ceph tell mon.a mon_status
J ceph tell mon.a sessions
J ceph tell mon.a config get mon_max_pg_per_osd
J ceph tell mon.a quorum_status
ceph tell mon.zz version
ceph config-key put k2 v2
ceph config-key rm nope
ceph config-key exists k2
J ceph config-key get k2
ceph config-key del k2
ceph auth add client.t1 mon 'allow r'
ceph auth add client.t1 mon 'allow rw'
ceph auth add client.t2 mon nonsense
ceph auth add client.admin mon nonsense
ceph auth get-or-create client.t1 mon 'allow r' osd nonsense
ceph auth add nonsense mon 'allow r'
ceph auth get-or-create client.t1 mon 'allow *'
J ceph auth get-or-create-key client.t1 mon 'allow r'
J ceph auth get-key client.t1
J ceph auth print-key client.t1
J ceph auth export client.t1
ceph auth export client.nobody
ceph auth caps client.nobody mon 'allow r'
ceph auth caps client.t1 mon nonsense
ceph auth caps client.t1 mon ''
ceph auth caps client.t1 mgr ''
ceph auth caps client.t1 osd ''
ceph auth caps client.t1 mon 'allow r' mds ''
ceph auth add client.t2 osd ''
ceph auth import -i /dev/null
ceph auth rm client.t1
ceph auth rm client.t1
ceph health mute OSDMAP_FLAGS
ceph osd set norebalance
J ceph health
ceph health mute OSDMAP_FLAGS 1h
J ceph health
J ceph health detail
ceph health mute OSDMAP_FLAGS 1h --sticky
J ceph health detail
ceph health mute OSDMAP_FLAGS nonsense
ceph health mute OSDMAP_FLAGS 10secs
ceph health mute OSDMAP_FLAGS 0
ceph health unmute OSDMAP_FLAGS
ceph health unmute OSDMAP_FLAGS
ceph osd unset norebalance
J ceph mon dump 1
J ceph mon dump 99
J ceph mon feature ls
J ceph mon versions
J ceph mon count-metadata ceph_version_short
J ceph mon metadata a
J ceph mon metadata zz
ceph mon ok-to-stop a
ceph mon ok-to-rm a
ceph mon ok-to-add-offline
ceph mon ok-to-stop zz
ceph mon rm a
ceph mon rm zz
ceph mon enable-msgr2
J ceph mgr versions
J ceph mgr count-metadata ceph_version_short
J ceph mgr metadata x
J ceph mgr metadata zz
J ceph mgr module ls
ceph mgr module enable nosuch
ceph mgr module disable nosuch
ceph mgr module disable balancer
ceph mgr fail nosuch
J ceph mds metadata
J ceph mds versions
ceph log hello
J ceph log last 1 info cluster
J ceph log last 1 debug nosuch
J ceph report
J ceph version
J ceph service status
J ceph balancer status
ceph balancer optimize beside
ceph balancer execute beside
ceph balancer eval p1
ceph balancer eval-verbose p1
ceph balancer eval-verbose
ceph balancer eval-verbose nosuch
ceph balancer dump nosuch
J ceph crash ls
J ceph crash stat
ceph crash info nosuch
ceph crash json_report 24
ceph crash json_report many
J ceph device ls
J ceph device ls-by-daemon osd.0
ceph device ls-by-daemon osd.77
J ceph device ls-by-host nosuch
ceph device info nosuch
J ceph telemetry status
ceph telemetry show
ceph telemetry show nosuch
J ceph telemetry show-device
J ceph telemetry show-all
ceph telemetry on
ceph telemetry send
ceph telemetry off
ceph progress off
ceph progress
J ceph progress json
ceph progress clear
ceph progress on
timeout 6 ceph iostat
timeout 3 ceph iostat -w 120
J ceph df bogus
ceph status bogus
ceph osd tree bogus bogus
ceph pg bogus
ceph config bogus
ceph auth bogus
ceph mon bogus
ceph osd pool bogus
ceph osd crush bogus
- ceph osd pool create fsmeta 8 8
- ceph osd pool create fsdata 8 8
- ceph osd pool create fsmore 8 8
- ceph osd pool create fsrbd 8 8
- ceph osd pool application enable fsrbd rbd
- ceph osd pool create fsec erasure
ceph fs new cephfs nometa fsdata
ceph fs new cephfs fsmeta nodata
ceph fs new 'a b' fsmeta fsdata
ceph fs new cephfs fsec fsdata
ceph fs new cephfs fsmeta fsec
ceph fs new cephfs fsmeta fsec --force
ceph fs new cephfs fsrbd fsdata
ceph fs new cephfs fsmeta fsdata 7
ceph fs new cephfs fsmeta fsdata
ceph fs new cephfs fsmeta fsdata
ceph fs new other fsmeta fsmore
J ceph fs ls
J ceph fs get cephfs
J ceph fs dump
J ceph mds stat
J ceph status
J ceph health detail
J ceph osd pool ls detail
J ceph fs compat show cephfs
ceph fs get nofs
ceph osd pool rm fsdata fsdata --yes-i-really-really-mean-it
ceph fs set nofs max_mds 2
ceph fs set cephfs max_mds 0
ceph fs set cephfs max_mds x
ceph fs set cephfs max_mds 257
ceph fs set cephfs max_mds 2
ceph fs set cephfs max_file_size 1
ceph fs set cephfs max_file_size x
ceph fs set cephfs max_file_size 2199023255552
ceph fs set cephfs allow_new_snaps x
ceph fs set cephfs allow_new_snaps no
ceph fs set cephfs allow_new_snaps true
ceph fs set cephfs inline_data true
ceph fs set cephfs inline_data true --yes-i-really-really-mean-it
J ceph health detail
ceph fs set cephfs inline_data false
ceph fs set cephfs cluster_down true
ceph fs set cephfs joinable true
ceph fs set cephfs allow_dirfrags true
ceph fs set cephfs balancer b.lua
ceph fs set cephfs balancer ''
ceph fs set cephfs standby_count_wanted -1
ceph fs set cephfs standby_count_wanted 1
J ceph health detail
ceph fs set cephfs session_timeout 29
ceph fs set cephfs session_timeout 45
ceph fs set cephfs session_autoclose x
ceph fs set cephfs session_autoclose 90
ceph fs set cephfs allow_standby_replay true
ceph fs set cephfs down true
ceph fs set cephfs down false
ceph fs set cephfs min_compat_client x
ceph fs set cephfs min_compat_client nautilus
ceph fs set cephfs novar 1
J ceph fs get cephfs
ceph fs required_client_features cephfs add jewel
ceph fs required_client_features cephfs add jewel
ceph fs required_client_features cephfs rm jewel
ceph fs required_client_features cephfs add bad
ceph fs required_client_features cephfs add 99
ceph fs add_data_pool cephfs nopool
ceph fs add_data_pool cephfs fsrbd
ceph fs add_data_pool cephfs fsmore
ceph fs add_data_pool cephfs fsmore
J ceph fs ls
ceph fs rm_data_pool cephfs fsdata
ceph fs rm_data_pool cephfs fsmore
ceph fs set-default nofs
ceph fs set-default cephfs
ceph fs flag set enable_multiple false
ceph fs new other fsmore fsrbd --force
ceph fs flag set enable_multiple true
ceph fs mirror peer_add cephfs 5d6e9f8e-8b6e-4b8e-9f8e-8b6e4b8e9f8e client.m@site remote
ceph fs mirror enable cephfs
ceph fs mirror peer_add cephfs 5d6e9f8e-8b6e-4b8e-9f8e-8b6e4b8e9f8e client.m@site remote
ceph fs mirror peer_add cephfs 5d6e9f8e-8b6e-4b8e-9f8e-8b6e4b8e9f8e client.m@site remote
ceph fs mirror peer_add cephfs 6d6e9f8e-8b6e-4b8e-9f8e-8b6e4b8e9f8e nosite remote
J ceph fs get cephfs
ceph fs mirror peer_remove cephfs 5d6e9f8e-8b6e-4b8e-9f8e-8b6e4b8e9f8e
ceph fs mirror disable cephfs
ceph fs compat cephfs add_incompat 60 sixty
ceph fs compat cephfs rm_incompat 60
ceph fs compat cephfs rm_compat 60
J ceph fs authorize cephfs client.fs1 / rw
ceph fs authorize cephfs client.fs1 / r
ceph fs authorize cephfs client.fs2 /a r /b rwps root_squash
J ceph auth get client.fs2
ceph fs authorize cephfs client.fs3 / x
ceph fs authorize nofs client.fs3 / r
ceph fs authorize cephfs fs3 / r
ceph mds ok-to-stop a
ceph mds rm 4242
ceph mds rmfailed 0
ceph mds repaired 0
ceph mds repaired nofs:0
J ceph mds metadata
ceph mds metadata a
J ceph mds versions
J ceph mds count-metadata hostname
J ceph mds compat show
ceph mds compat rm_compat 5
ceph mds dump
ceph fs fail nofs
ceph fs fail cephfs
ceph fs reset cephfs
ceph fs reset cephfs --yes-i-really-mean-it
J ceph fs dump
J ceph health detail
ceph fs rm cephfs
ceph fs rm nofs --yes-i-really-mean-it
ceph fs rm cephfs --yes-i-really-mean-it
J ceph fs dump
ceph fs new again fsmeta fsmore --recover
J ceph fs get again
J ceph fs volume ls
ceph fs volume create
ceph fs volume create 'a b'
ceph fs volume create vol
J ceph fs volume ls
J ceph fs ls
ceph osd pool get cephfs.vol.meta recovery_priority
ceph osd pool application get cephfs.vol.data
ceph fs volume rm vol
ceph fs volume rm vol --yes-i-really-mean-it
J ceph fs status
"""

# What differs because the two clusters are not the same thing: the device class of their disks,
# the pool and keys that Ceph's manager makes for a module of its own, units of space used, names
# of hosts, containers, compilers and stores.
NOT_COMPARED = {
    "ssd", "hdd", "KiB", "MiB", "GiB", "TiB", "device_health_metrics", "mgr_devicehealth", "pg_num_max",
    "pg_num_min", "devicehealth", "last_scrape", "telemetry", "report_id", "salt", "loligo", "container_name",
    "ddc", "inkstore", "memstore",
}
PATHS_NOT_COMPARED = re.compile(
    r"stats_by_class\.(ssd|hdd)|mgr_devicehealth|options\.pg_num_m|\.mgr/|container_name|device_(ids|paths)$|\.devices$")

# Known differences: the command and the difference (patterns, matched whole), and why it is there.
# An entry that a run did not need is said at its end.
DIFFERENT = [
    ("ceph (osd )?(pool )?bogus|ceph tell (osd.0 bogus|mon.a quorum_status|mgr.x heap stats)", r"word (missing|extra) [\w-]+", "the list of similar commands is made of our commands"),
    ("ceph (osd|mon) metadata.*", r"(word )?(missing|extra) (\.|\[\]\.)?(bluestore_bdev_size|osd_uuid|vda|snappy|zlib|zstd)", "another store; frames are never compressed"),
    ("ceph mgr (dump|module ls)", r"word (missing|extra) .*|missing \.(disabled_modules|.*available_modules|active_clients|always_on_modules|services).*", "Python modules, their options and clients: our manager has none"),
    ("ceph config(-key)? (show (osd.0|mgr.x|mon.a)|ls|dump)|ceph tell osd.0 config (show|diff)( get osd_max_backfills)?", r"word (missing|extra) .*|(missing|extra) (\[\]\.overrides.*|\.[a-z_.0-9]+)", "the two configuration files differ; options of what we do not have; keys of Python modules; defaults that main() sets"),
    ("ceph config help mgr/.*|ceph (tell osd.0 )?config help osd_max_backfills", r"word (missing|extra) .*", "we describe options in our own words"),
    ("ceph tell osd.0 perf dump osd", r"word missing [a-z_]+|missing \.osd\.[a-z_.]+", "counters of things that we do not do (cache tiers) or do not count"),
    ("ceph tell mon.a perf (dump paxos|schema)", r"word (missing|extra) .*|missing \.[A-Za-z:_.0-9-]+|.*description.*", "no Paxos here: counters of collecting, refreshing and sharing have no meaning; nor are there caches, throttles and finishers of threads; we describe counters in our own words"),
    ("ceph tell osd.0 dump_pgstate_history", r"word (missing|extra) [A-Za-z]+", "states that are gone through in one step are not seen: which there are depends on the moment"),
    ("ceph tell mon.a dump_historic_slow_ops", r"word missing \w+", "Ceph's says that it does not track ops, which it does: it tests for the contrary"),
    ("ceph tell mon.a dump_historic_ops", r"word missing .*|missing \.ops\[\].*", "a monitor handles a request in one step and remembers none"),
    ("ceph osd crush reweight osd.0 1e9", r"word (missing|extra) .*", "we say what is too large"),
    ("ceph osd test-reweight-by-utilization", r"exit code 0, real 33.*", "the device is larger there: too little is used to reweight"),
    ("ceph tell mon.a sessions", r"word (missing|extra) .*", "a monitor is no session of its own here"),
    ("ceph report", r"word (missing|extra) .*|(missing|extra) \.(paxos|osd_sum_by_class|osd_metadata|monitoring|quorum|osdmap|crushmap|mdsmap|fsmap|auth|pg).*", "no Paxos here; another device class, PGs in other states"),
    ("ceph telemetry status", r"word (missing|extra) .*", "nothing is ever sent, so there are no addresses and no settings of where to"),
    ("ceph telemetry (show|on|send).*", r"word (missing|extra) .*|missing \.[a-z].*", "nothing is ever sent: there is no report to show, and it is refused for good"),
    ("ceph report", r"extra \.purged_snaps.*", "snapshots are purged sooner here"),
    ("ceph log last (3|1 info cluster)", r"word (missing|extra) .*|(missing|extra) \[\]\.addrs.*|extra \[\]\.[a-z]+", "what was logged last by then, if the real one had logged anything, and by whom"),
    ("ceph balancer (optimize|execute) beside", r"exit code 22, real (11|2): .*", "a real manager asks first whether PGs are inactive, as some of its cluster may still be"),
    ("ceph balancer status", r"word (missing|extra) .*", "what the last optimization came to"),
    ("ceph pg (dump pgs|dump_json sum|ls active|ls-by-primary 0|ls {p1}|dump_stuck inactive)|timeout 3 ceph iostat -w 120", r"word (missing|extra) .*|(missing|extra) .*(object_location_counts|purged_snaps|stuck_pg_stats).*", "PGs in other states at that moment"),
]

# Commands that look and change nothing.
LOOKS = re.compile(
    r"ceph .*\b(status|health|df|dump|dump_\w+|ls|ls-by-\w+|stat|stats|get|list|list-\w+|show|report|metadata|versions|"
    r"features|tree|find|utilization|perf|blocked-by|sessions|iostat|query|debug|map|progress|ok-to-stop|safe-to-destroy)\b.*|ceph -s")

# Parts of JSON whose keys are data: compared by the shape of their first value.
KEYS_ARE_DATA = re.compile(r"^(\d.*|osd\.\d+|client\..*|[0-9a-f-]{36}|.*ceph version.*|p\d|v[12]:.*|.*:.*/\d+|device_health_metrics)$")


@functools.cache
def pool_p1(parsed, _):
    """The id of the pool p1, which is another in each cluster."""
    return next(str(p["poolnum"]) for p in parsed("ceph osd lspools") if p["poolname"] == "p1")


if __name__ == "__main__":
    sys.exit(comparison.main(comparison.Comparison(
        commands=COMMANDS, different=DIFFERENT, looks=LOOKS, patient=re.compile("settle|.*iostat.*"),
        words_not_compared=frozenset(NOT_COMPARED), paths_not_compared=PATHS_NOT_COMPARED,
        keys_are_data=KEYS_ARE_DATA, variables={"p1": pool_p1})))
