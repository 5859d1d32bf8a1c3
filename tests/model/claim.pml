/*
 * The claim: dispatchers, the processes that ask for them, one lock on each claim host, user managers, and whoever kills.
 * Everything is one issue. Checked exhaustively by tests/model/test_claim.py, which also breaks it in every way named at
 * MUTANTS and sees it fail. docs/claim.md says in prose what is here and what is not.
 *
 *   gtrun/dispatch.py, start.py dispatch, _claim_and_start, start         Dispatcher
 *   gtrun/state/claim.py        taken, _lock                              take, drop_if_last
 *   gtrun/survey.py             Team.ask_all                              ask_all
 *   gtrun/guards/claim.py       check                                     Dispatcher
 *   gtrun/reach/worker.py       Worker.call, _answer_all                  the channel `request`, Worker
 *   gtrun/reach/operations/     start                                     Worker, FarEnd
 *   gtrun/reach/far.py          pass_on, _answer, Link.exchange           Worker, with FAR
 *   systemd                     ListUnitsByPatterns, StartTransientUnit   Manager
 *   kernel                      close(2), and a dead process's end        drop_if_last
 *
 * FAULTS (-D…): each lets a guard open or goes round the lock. An execution in which one of them happened is excused.
 *   LOCK_TIMEOUT  LOCK_UNUSABLE  UNREACHABLE  TWO_HOSTS  HATCH
 * Deaths are no faults and excuse nothing. KILLS: every dispatcher and every worker may be killed at any step.
 * FAR: every agent is behind ssh. Its worker only passes requests on to a far end, which is not killed with it. What was
 * sent may take any time to get there, or never do; a lease may run out at any moment, and is the end of the far end.
 * Two deaths are a fault then: of a dispatcher and of its worker, with the start on its way.
 * MANAGER_DIES: so may every manager, once, and is started anew. Whoever cannot ask it meanwhile says so: that excuses.
 * MUTANTS (-D…): NO_LOCK  EARLY_RELEASE  IGNORES_AN_AGENT  COUNTS_ACTIVE_ONLY  DEATH_KEEPS_LOCK  NOT_LENT
 *   NAME_IS_FREE  BUS_REORDERS  NO_LEASE (with FAR), and FAULTS_EXCUSE_NOTHING.
 */

#ifndef N
#define N 3 /* dispatchers */
#endif
#ifndef M
#define M 2 /* agents */
#endif
#ifdef HATCH
#define NAMES N /* task-1, task-1-dup1, … */
#else
#define NAMES 1
#endif
#ifdef TWO_HOSTS
#define HOSTS 2
#else
#define HOSTS 1
#endif

mtype:unit = { absent, queued, working, closing, left_over };
mtype:manager = { up, dying, down };
mtype:answer = { unasked, asked, told, silent };
mtype:call = { list, start };
mtype:reply = { nothing, started, taken_live, taken_dead, lost };
/* `without`: refused or failed, with nothing started; `over`: all else, which may have started its run */
mtype:fate = { under_way, without, over };

/* What a manager knows, and the processes that there really are: the properties are about the latter. */
mtype:unit unit[M * NAMES];
byte processes[M * NAMES];
mtype:manager manager[M];

/* A manager reads its bus in order: a probe that was sent after a start was sent is answered after that start. */
chan bus[M] = [N * 3] of { mtype:call, byte, byte };

mtype:answer answer[N * M];
byte seen[N * M]; /* the names that are live there, one bit each */

chan request[N] = [1] of { byte };
mtype:reply reply[N];   /* manager to worker */
mtype:reply result[N];  /* worker to dispatcher */
#ifdef FAR
chan wire[N] = [1] of { byte };
mtype:reply far_reply[N]; /* far end to worker */
bool is_leased[N];        /* a start is on its way to the far end, or there, or is about to be sent */
bool has_run_out[N];      /* its lease; the far end is dead */
#define sender_is_dead(d) has_run_out[d]
#ifdef NO_LEASE
#define is_settled(d) true
#else
#define is_settled(d) (has_run_out[d] || !is_leased[d])
#endif
#else
#define sender_is_dead(d) worker_is_dead[d]
#define is_settled(d) true
#endif

/* flock(2): the lock belongs to the open file, and is free when nobody has a descriptor of it any more. */
byte owner[HOSTS];      /* dispatcher + 1 whose open file has it; 0: free */
byte host[N];
bool dispatcher_has[N];
bool worker_has[N];

byte target[N];
bool hatch[N];
mtype:fate fate[N];
bool is_started[N];
bool kill_dispatcher[N];
bool kill_worker[N];
bool worker_is_dead[N];

bool excused; /* a fault of the table happened, and where gtrun can know it, it said so */

/* The properties, each under the name that pan prints. */
bool one_run_of_the_issue = true;
bool one_unit_of_a_name = true;
bool refused_has_started_nothing = true;

#ifdef COUNTS_ACTIVE_ONLY
#define is_live(u) (u == working)
#else
#define is_live(u) (u == queued || u == working || u == closing)
#endif

#ifdef IGNORES_AN_AGENT
#define is_looked_at(b) (b != 0 || target[d] == 0)
#else
#define is_looked_at(b) true
#endif

inline excuse() {
#ifndef FAULTS_EXCUSE_NOTHING
    excused = true
#else
    skip
#endif
}

/* --- the lock */

/* the last descriptor of an open file that had the lock is closed */
inline drop_if_last(d) {
    if
    :: !dispatcher_has[d] && !worker_has[d] && owner[host[d]] == d + 1 -> owner[host[d]] = 0
    :: else
    fi
}

/* claim.taken: _open, then _lock; a lock that is not to be had lets the run proceed, and excuses it */
inline take(d) {
    if
#ifdef LOCK_UNUSABLE
    :: atomic { true -> excuse() }
#endif
#ifdef LOCK_TIMEOUT
    :: atomic { owner[host[d]] != 0 -> excuse() }
#endif
#ifdef NO_LOCK
    :: true
#else
    :: atomic { owner[host[d]] == 0 -> owner[host[d]] = d + 1; dispatcher_has[d] = true }
#endif
    fi
}

/* --- the probe */

#if M > 2
#define has_all(d) (answer[d * M] != asked && answer[d * M + 1] != asked && answer[d * M + 2] != asked)
#else
#define has_all(d) (answer[d * M] != asked && answer[d * M + 1] != asked)
#endif

/* Team.ask_all: every agent at once. Who did not answer is not asked again. A target that is silent ends the dispatch. */
inline ask_all(d) {
    b = 0;
    do
    :: b < M ->
        atomic {
            if
            :: answer[d * M + b] != silent -> answer[d * M + b] = asked; seen[d * M + b] = 0; bus[b]!list, d, 0
            :: else
            fi;
            b++
        }
    :: else -> break
    od;
    do
    :: has_all(d) -> break
#ifdef UNREACHABLE
    :: atomic { answer[d * M] == asked -> answer[d * M] = silent } /* the deadline of one agent */
    :: atomic { M > 1 && answer[d * M + 1] == asked -> answer[d * M + 1] = silent }
#if M > 2
    :: atomic { answer[d * M + 2] == asked -> answer[d * M + 2] = silent }
#endif
#endif
    od
}

/* --- a dispatch */

inline end_without(d) {
    atomic {
        fate[d] = without;
        refused_has_started_nothing = refused_has_started_nothing && !is_started[d];
        assert(refused_has_started_nothing)
    }
}

proctype Dispatcher(byte d) {
    byte b;
    byte k;
    bool is_open;
    bool is_hatched;
    bool is_met;
    bool is_second;

    {
        /* board.check, quota.check, duplicate.check: whoever they refuse is one dispatcher less. ledger.begin and
           operations.prepare: durable, and nothing that anybody else acts on. */
        take(d); /* _claim_and_start: with claim_lock.taken(…) */
        ask_all(d);
        /* claim.check: a live unit anywhere refuses; else a silent agent leaves it open. Then _free_name. */
        atomic {
            b = 0;
            do
            :: b < M ->
                if
                :: !is_looked_at(b)
                :: is_looked_at(b) && answer[d * M + b] == silent -> is_open = true
                :: is_looked_at(b) && seen[d * M + b] && b == target[d] && hatch[d] -> is_hatched = true
                :: is_looked_at(b) && seen[d * M + b] && !(b == target[d] && hatch[d]) -> is_met = true
                :: else
                fi;
                b++
            :: else -> break
            od;
            b = 0;
            do
            :: k < NAMES - 1 && (seen[d * M + target[d]] & (1 << k)) -> k++
            :: else -> break
            od;
            if
            :: answer[d * M + target[d]] == silent -> is_met = true /* without a manager nothing can start */
            :: else
            fi;
            if
            :: !is_met && (is_open || is_hatched) -> excuse()
            :: else
            fi
        };
        if
        :: is_met -> goto turned_away
        :: else
        fi;
#ifdef EARLY_RELEASE
        atomic { dispatcher_has[d] = false; drop_if_last(d) };
#endif

ask_for_it: /* start.start: Worker.call(start, lend=lock), or it is dead: ManagerSilent */
        if
        :: atomic {
                !worker_is_dead[d] -> result[d] = nothing; request[d]!k;
#ifdef FAR
                is_leased[d] = true; /* since the far end's last answer, which was the probe's */
#endif
#ifndef NOT_LENT
                worker_has[d] = dispatcher_has[d] /* a descriptor on its way is open */
#endif
            }
        :: worker_is_dead[d] -> goto finished
        fi;
        if
        :: result[d] == started -> goto finished
        :: result[d] == taken_live -> goto turned_away
        :: result[d] == lost -> goto finished
        :: atomic { result[d] == taken_dead -> result[d] = nothing };
            if
            :: !is_second ->
                is_second = true;
                /* operations.wait_until_free: until it is, or for a while */
                if
                :: unit[target[d] * NAMES + k] == absent -> goto ask_for_it
                :: unit[target[d] * NAMES + k] != absent -> goto turned_away
                fi
            :: is_second -> goto turned_away
            fi
        :: worker_is_dead[d] && result[d] == nothing && is_settled(d) -> goto finished
        :: result[d] == nothing && !worker_is_dead[d] && is_settled(d) -> /* the deadline: Worker.close kills, waits */
            kill_worker[d] = true;
            worker_is_dead[d];
            goto finished
        fi;
turned_away:
        end_without(d)
    } unless {
        kill_dispatcher[d]
    };
finished: /* claim.taken closes the lock's descriptor, and so does the kernel after a death */
    atomic {
        do
        :: b < M -> answer[d * M + b] = unasked; seen[d * M + b] = 0; b++
        :: else -> break
        od;
        b = 0;
        result[d] = nothing;
        is_started[d] = false;
#ifdef DEATH_KEEPS_LOCK
        if
        :: !kill_dispatcher[d] -> dispatcher_has[d] = false
        :: else
        fi;
#else
        dispatcher_has[d] = false;
#endif
        drop_if_last(d);
        if
        :: fate[d] == under_way -> fate[d] = over
        :: else
        fi;
        kill_dispatcher[d] = false
    }
}

/* The process that acts as the target's account. It goes on when its parent is dead, and serves what was asked before. */
proctype Worker(byte d) {
    byte k;

    {
end_idle: /* when its parent hangs up, it ends, and nobody cares */
        do
        :: request[d]?k ->
#ifdef FAR
            /* far.pass_on, _answer: kept until the far end has answered, or its lease has run out */
            atomic { wire[d]!k; k = 0 };
            if
            :: atomic { far_reply[d] != nothing -> is_leased[d] = false; worker_has[d] = false; drop_if_last(d) }
#ifdef NO_LEASE
            :: atomic { true -> worker_has[d] = false; drop_if_last(d) } /* the connection is lost */
#else
            :: atomic { has_run_out[d] -> worker_has[d] = false; drop_if_last(d) }
#endif
            fi;
            atomic {
                if
                :: fate[d] == under_way && far_reply[d] != nothing -> result[d] = far_reply[d]
                :: fate[d] == under_way && far_reply[d] == nothing -> result[d] = lost
                :: else
                fi;
                far_reply[d] = nothing
            }
#else
            /* operations.start */
            bus[target[d]]!start, d, k;
            /* _answer_all: the lent descriptor is closed before the answer is sent */
            atomic { reply[d] != nothing -> worker_has[d] = false; drop_if_last(d) };
            atomic {
                if
                :: fate[d] == under_way -> result[d] = reply[d]
                :: else
                fi;
                reply[d] = nothing;
                k = 0
            }
#endif
        od
    } unless {
        kill_worker[d]
    };
    atomic {
        k = 0;
        kill_worker[d] = false;
        if
        :: request[d]?_ /* nobody will read it: what was lent with it is closed, too */
        :: empty(request[d])
        fi;
        worker_has[d] = false;
        drop_if_last(d);
        worker_is_dead[d] = true
    }
}

#ifdef FAR
/* gtrun worker, on another box: it serves what has come, and hears of no death. */
proctype FarEnd(byte d) {
    byte k;

    {
end_idle:
        do
        :: wire[d]?k ->
            bus[target[d]]!start, d, k;
            atomic { reply[d] != nothing -> far_reply[d] = reply[d]; reply[d] = nothing; k = 0 }
        od
    } unless {
        has_run_out[d]
    };
    atomic {
        k = 0;
        if
        :: wire[d]?_
        :: empty(wire[d])
        fi
    }
}

/* Its kernel. Without a lease nothing ends it. */
proctype Lease(byte d) {
end_of_lease:
#ifdef NO_LEASE
    false
#else
    atomic { is_leased[d] -> has_run_out[d] = true }
#endif
}
#endif

/* --- a user manager and its units */

#define UNIT(n) unit[a * NAMES + n]
#define PROCESSES(n) processes[a * NAMES + n]

/* A unit's life. A run that is closed out is still one: its name is taken, and it counts. */
#define LIFE(n) \
    :: atomic { manager[a] == up && UNIT(n) == queued -> UNIT(n) = working } \
    :: atomic { manager[a] == up && UNIT(n) == working -> UNIT(n) = closing } \
    :: atomic { manager[a] == up && UNIT(n) == closing -> UNIT(n) = absent; PROCESSES(n)-- } \
    :: atomic { manager[a] == up && UNIT(n) == left_over -> UNIT(n) = absent }

inline check_properties() {
    n = 0;
    total = 0;
    do
    :: n < M * NAMES ->
        total = total + processes[n];
        one_unit_of_a_name = one_unit_of_a_name && processes[n] <= 1;
        n++
    :: else -> break
    od;
    one_run_of_the_issue = one_run_of_the_issue && (total <= 1 || excused);
    refused_has_started_nothing = refused_has_started_nothing && fate[d] != without;
    n = 0;
    total = 0;
    assert(one_unit_of_a_name);
    assert(one_run_of_the_issue);
    assert(refused_has_started_nothing)
}

proctype Manager(byte a) {
    mtype:call call;
    byte d;
    byte k;
    byte n;
    byte total;
    bool has_died;

end_quiet:
    do
    :: atomic {
            manager[a] == up && nempty(bus[a]) ->
#ifdef BUS_REORDERS
            if
            :: bus[a]??list, d, k -> call = list
            :: bus[a]??start, d, k -> call = start
            fi;
#else
            bus[a]?call, d, k;
#endif
            if
            :: call == list && answer[d * M + a] == asked -> /* ListUnitsByPatterns */
                do
                :: n < NAMES ->
                    if
                    :: is_live(UNIT(n)) -> seen[d * M + a] = seen[d * M + a] | (1 << n)
                    :: else
                    fi;
                    n++
                :: else -> break
                od;
                n = 0;
                answer[d * M + a] = told
            :: call == list && answer[d * M + a] != asked /* nobody waits for it any more */
            :: call == start && sender_is_dead(d) /* what a dead process had sent may be lost, or carried out */
#ifdef NAME_IS_FREE
            :: call == start ->
#else
            :: call == start && UNIT(k) == left_over -> reply[d] = taken_dead /* UnitExists */
            :: call == start && UNIT(k) != left_over && UNIT(k) != absent -> reply[d] = taken_live
            :: call == start && UNIT(k) == absent ->
#endif
                UNIT(k) = queued;
                PROCESSES(k)++;
                is_started[d] = fate[d] == under_way;
                reply[d] = started;
                check_properties()
            fi;
            call = 0;
            d = 0;
            k = 0
        }
    LIFE(0)
#if NAMES > 1
    LIFE(1)
#endif
#if NAMES > 2
    LIFE(2)
#endif
#ifdef MANAGER_DIES
        /* its processes are killed by the system's manager, a moment later */
    :: atomic {
            manager[a] == up && !has_died ->
            has_died = true;
            manager[a] = dying;
            do
            :: n < NAMES -> UNIT(n) = absent; n++
            :: else -> break
            od;
            n = 0
        }
    :: atomic {
            manager[a] == dying ->
            manager[a] = down;
            do
            :: n < NAMES -> PROCESSES(n) = 0; n++
            :: else -> break
            od;
            n = 0
        }
        /* it is started anew; files of units that it had may be left */
    :: atomic { manager[a] == down -> manager[a] = up }
    :: atomic { manager[a] == down -> manager[a] = up; UNIT(0) = left_over }
        /* no manager, no bus: whoever asks is told so */
    :: atomic {
            manager[a] != up && nempty(bus[a]) -> bus[a]?call, d, k;
            if
            :: call == list && answer[d * M + a] == asked -> answer[d * M + a] = silent
            :: call == list && answer[d * M + a] != asked
            :: call == start -> reply[d] = lost
            fi;
            call = 0;
            d = 0;
            k = 0
        }
#endif
    od
}

#ifdef KILLS
#define KILL(n) \
    :: atomic { \
            left > 0 && fate[n] == under_way && !kill_dispatcher[n] -> left--; \
            kill_dispatcher[n] = true \
        } \
    :: atomic { \
            left > 0 && !worker_is_dead[n] && !kill_worker[n] && \
            (fate[n] == under_way || worker_has[n] || nempty(request[n])) -> left--; \
            kill_worker[n] = true \
        }

/* So many deaths, at any step of anybody. What is over is not killed: that would change nothing. */
proctype Killer() {
    byte left = KILLS;

end_of_killing:
    do
    KILL(0)
    KILL(1)
#if N > 2
    KILL(2)
#endif
#if N > 3
    KILL(3)
#endif
    od
}
#endif

init {
    byte i;

    atomic {
        do
        :: i < M -> manager[i] = up; run Manager(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < N * M -> answer[i] = unasked; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < M * NAMES -> unit[i] = absent; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < N ->
            reply[i] = nothing;
            result[i] = nothing;
#ifdef FAR
            far_reply[i] = nothing;
#endif
            fate[i] = under_way;
#ifdef TWO_HOSTS
            if
            :: host[i] = 0
            :: host[i] = 1; excuse()
            fi;
#endif
#ifdef HATCH
            if
            :: hatch[i] = false
            :: hatch[i] = true
            fi;
#endif
            i++
        :: else -> break
        od;
        /* who is to run it: up to the names of agents and of dispatchers, these are all the ways */
        if
        :: true
        :: target[N - 1] = 1
#if M > 2
        :: target[1] = 1; target[2] = 2
#endif
        fi;
        i = 0;
        do
        :: i < N ->
            run Worker(i);
            run Dispatcher(i);
#ifdef FAR
            run FarEnd(i);
            run Lease(i);
#endif
            i++
        :: else -> break
        od;
        i = 0;
#ifdef KILLS
        run Killer()
#endif
    }
}
