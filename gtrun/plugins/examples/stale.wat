;; stale.wasm: names the files that nobody has changed for so many days (its argument; 30 without one), in the folders
;; that it was given, and exits with 1 if there are any.
;;
;;   [plugins.stale]
;;   arguments = ["14"]
;;   directories = ["~/reports"]
;;
;; All that it can do is in the list of its imports (WASI preview 1): it can open nothing else, and change nothing.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))

  ;; 0..63 results of calls · 64..127 file status · 256.. the folder's name · 1024.. arguments · 4096.. entries
  (memory (export "memory") 2)
  (data (i32.const 128) "/")
  (data (i32.const 129) "\n")
  (data (i32.const 130) "usage: stale [DAYS]\n")

  (global $before (mut i64) (i64.const 0)) ;; nanoseconds since the epoch: what was changed earlier is stale
  (global $found (mut i32) (i32.const 0))

  (func $print (param $to i32) (param $text i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $text))
    (i32.store (i32.const 4) (local.get $length))
    (drop (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8))))

  ;; The first argument as a number of days.
  (func $days (result i64)
    (local $at i32) (local $digit i32) (local $number i64)
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (if (i32.lt_u (i32.load (i32.const 0)) (i32.const 2)) (then (return (i64.const 30))))
    (if (i32.or (i32.gt_u (i32.load (i32.const 0)) (i32.const 8)) (i32.gt_u (i32.load (i32.const 4)) (i32.const 512)))
      (then (call $usage)))
    (drop (call $args_get (i32.const 16) (i32.const 1024)))
    (local.set $at (i32.load (i32.const 20)))
    (if (i32.eqz (i32.load8_u (local.get $at))) (then (call $usage)))
    (loop $next
      (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
      (if (i32.or (i32.gt_u (local.get $digit) (i32.const 9)) (i64.gt_u (local.get $number) (i64.const 9999)))
        (then (call $usage)))
      (local.set $number
        (i64.add (i64.mul (local.get $number) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.load8_u (local.get $at))))
    (local.get $number))

  (func $usage
    (call $print (i32.const 2) (i32.const 130) (i32.const 20))
    (call $proc_exit (i32.const 2)))

  ;; One folder, of which $name bytes are the name.
  (func $look (param $folder i32) (param $name i32)
    (local $cookie i64) (local $entry i32) (local $end i32) (local $length i32)
    (loop $more
      (if (call $fd_readdir (local.get $folder) (i32.const 4096) (i32.const 65536) (local.get $cookie) (i32.const 0))
        (then (return)))
      (local.set $entry (i32.const 4096))
      (local.set $end (i32.add (i32.const 4096) (i32.load (i32.const 0))))
      (block $read
        (loop $each
          ;; an entry is 24 bytes and its name; one that is cut off comes again, with the next reading
          (br_if $read (i32.gt_u (i32.add (local.get $entry) (i32.const 24)) (local.get $end)))
          (local.set $length (i32.load offset=16 (local.get $entry)))
          (br_if $read
            (i32.gt_u (i32.add (i32.add (local.get $entry) (i32.const 24)) (local.get $length)) (local.get $end)))
          (local.set $cookie (i64.load (local.get $entry)))
          (if (i32.eq (i32.load8_u offset=20 (local.get $entry)) (i32.const 4)) ;; a regular file
            (then (call $judge (local.get $folder) (local.get $name)
                    (i32.add (local.get $entry) (i32.const 24)) (local.get $length))))
          (local.set $entry (i32.add (i32.add (local.get $entry) (i32.const 24)) (local.get $length)))
          (br $each)))
      (br_if $more (i32.eq (i32.load (i32.const 0)) (i32.const 65536)))))

  (func $judge (param $folder i32) (param $name i32) (param $file i32) (param $length i32)
    (local $used i32)
    (local.set $used (i32.load (i32.const 0))) ;; of the reading that we are in: $print uses the place
    (if (i32.eqz (call $path_filestat_get
          (local.get $folder) (i32.const 0) (local.get $file) (local.get $length) (i32.const 64)))
      (then
        (if (i64.lt_u (i64.load (i32.const 104)) (global.get $before)) ;; when it was last changed
          (then
            (global.set $found (i32.const 1))
            (call $print (i32.const 1) (i32.const 256) (local.get $name))
            (call $print (i32.const 1) (i32.const 128) (i32.const 1))
            (call $print (i32.const 1) (local.get $file) (local.get $length))
            (call $print (i32.const 1) (i32.const 129) (i32.const 1))))))
    (i32.store (i32.const 0) (local.get $used)))

  (func (export "_start")
    (local $folder i32) (local $name i32) (local $days i64)
    (local.set $days (call $days))
    (drop (call $clock_time_get (i32.const 0) (i64.const 1000000) (i32.const 0)))
    (global.set $before
      (i64.sub (i64.load (i32.const 0)) (i64.mul (local.get $days) (i64.const 86400000000000))))
    (local.set $folder (i32.const 3)) ;; the first after the standard streams
    (block $none
      (loop $each
        (br_if $none (call $fd_prestat_get (local.get $folder) (i32.const 0)))
        (local.set $name (i32.load (i32.const 4)))
        (if (i32.le_u (local.get $name) (i32.const 768))
          (then
            (drop (call $fd_prestat_dir_name (local.get $folder) (i32.const 256) (local.get $name)))
            (call $look (local.get $folder) (local.get $name))))
        (local.set $folder (i32.add (local.get $folder) (i32.const 1)))
        (br $each)))
    (call $proc_exit (global.get $found))))
