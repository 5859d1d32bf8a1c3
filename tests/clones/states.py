"""What can be in a clone, as the shell makes it there: the clone of `Place`, which is one commit behind its remote."""

NAMES = r"""
printf a > $'new\nline'; printf b > $'quote"d\\'; printf c > $'\xff\xfe'; printf d > ' space '; printf e > '-dash'
mkdir $'d\ne'; printf f > $'d\ne/ä'; ln -s $'nowhere\n' $'li\nnk'; printf g > $'tab\there'; : > empty; printf h > ':top'
"""

ASIDE = {
    "modified": "echo more >> changed",
    "staged": "echo more >> changed; git add changed",
    "staged, then modified": "echo more >> changed; git add changed; echo again >> changed",
    "staged, and back in the tree": "echo more >> changed; git add changed; echo one > changed",
    "deleted": "rm changed dir/inner",
    "deleted in the index": "git rm -q changed; git rm -q --cached kept",
    "added": "echo a > added; git add added; echo b > both; git add both; echo c >> both",
    "added, then deleted": "echo a > added; git add added; rm added",
    "renamed": "git mv changed moved",
    "untracked": "echo u > untracked; mkdir -p deep/er; echo v > deep/er/still; mkdir empty",
    "names": NAMES,
    "names, staged": NAMES + "git add -A",
    "modes and kinds": "chmod +x kept; chmod -x run.sh; rm link; echo l > link; rm changed; ln -s run.sh changed",
    "a program untracked": "echo p > tool; chmod 755 tool; ln -s /etc/passwd out; ln -s dir in",
    "a file becomes a folder": "rm changed; mkdir changed; echo i > changed/inside",
    "a folder becomes a file": "rm -r dir; echo d > dir",
    "a folder becomes a link": "rm -r dir; mkdir other; echo x > other/inner; ln -s other dir",
    "in the remote's way": "echo mine > new",
    "a folder in the remote's way": "mkdir new; echo mine > new/file",
    "binary": "head -c 300000 /dev/urandom > binary; head -c 3000 /dev/zero >> kept",
    "line ends": r"printf 'a\r\nb\r\n' > dos; printf 'x\r\n' > changed",
    "line ends that git would convert": r"""
        git config core.autocrlf input; printf 'a\r\n' > dos; printf 'x\r\n' > changed""",
    "private": "echo s > secret; chmod 600 secret",
    "unpushed": "echo more >> changed; git commit -qam mine; echo x > y; git add y; git commit -qm more",
    "unpushed and uncommitted": """
        echo m >> changed; git commit -qam mine; echo n >> changed; echo o > other; git add other""",
    "merged, unpushed": """
        git checkout -q -b side; echo s > s; git add s; git commit -qm s; git checkout -q main
        echo t > t; git add t; git commit -qm t; git merge -q --no-edit side""",
    "detached": "git checkout -q --detach; echo more >> changed",
    "detached and unpushed": "git checkout -q --detach; echo more >> changed; git commit -qam mine",
    "untracked cache": """
        git config core.untrackedCache true; git update-index --untracked-cache; git status >/dev/null; echo u > u""",
    "nothing shown": """
        git config status.showUntrackedFiles no; git config core.fileMode false; git config core.trustctime false
        echo u > untracked; chmod +x kept""",
    "split index": "git update-index --split-index; echo m >> changed; git add changed; echo u > untracked",
    "sparse": "git sparse-checkout set dir; echo m >> kept; echo u > dir/untracked",
    "hooks": r"""
        for h in post-index-change reference-transaction post-checkout pre-auto-gc; do
            printf '#!/bin/sh\ntouch ../ran\nexit 1\n' > .git/hooks/$h; chmod +x .git/hooks/$h
        done
        echo m >> changed""",
    "on another branch": "git checkout -q -b issue-1; echo m >> changed; git add changed; echo u > untracked",
    "on another branch, unpushed": "git checkout -q -b issue-1; echo m >> changed; git commit -qam mine",
    "on another branch, unpushed and uncommitted": """
        git checkout -q -b issue-1; echo m >> changed; git commit -qam mine
        git rm -q kept; echo n >> changed; echo u > u""",
    "on another branch of the remote": """
        git checkout -q -b issue-1; echo i > i; git add i; git commit -qm i
        git push -q -u origin issue-1; echo m > i""",
    "on a branch in no encoding": "git checkout -q -b $'\\xff'; echo m >> changed",
    "on a branch that follows a local one": "git checkout -q -b mine --track main; echo m >> changed",
    "on a branch of another remote": """
        git remote add fork ../remote.git; git fetch -q fork; git checkout -q -b mine --track fork/main
        echo m > changed""",
    "a branch that follows what is gone": "git config branch.main.merge refs/heads/gone; echo m >> changed",
    "without the default branch": "git checkout -q -b mine; git branch -qD main; echo m >> changed",
    "detached, without the default branch": "git checkout -q --detach; git branch -qD main; echo m >> changed",
    "through a link": "cd ..; mv app real; ln -s real app; cd real; echo m >> changed; echo u > untracked",
}
"""What can be set aside."""

CONFLICT = """
    git checkout -q -b side; echo s > changed; git commit -qam s
    git checkout -q main; echo m > changed; git commit -qam m
"""
DROP = "drop() { rm -f .git/objects/${1:0:2}/${1:2}; };"
UNTOUCHED = {
    "merge conflict": (CONFLICT + "git merge -q side || true", "a merge is in progress"),
    "merge, resolved": (CONFLICT + "git merge -q side || git add -A", "a merge is in progress"),
    "rebase": (CONFLICT + "git rebase -q side || true", "a rebase is in progress"),
    "rebase by patches": (CONFLICT + "git rebase -q --apply side || true", "a rebase is in progress"),
    "cherry-pick": (CONFLICT + "git cherry-pick side || true", "a cherry-pick is in progress"),
    "revert": (CONFLICT + "git revert --no-edit HEAD~1 || true", "a revert is in progress"),
    "bisect": ("git bisect start >/dev/null", "a bisect is in progress"),
    "conflict left by a stash": (
        CONFLICT + "echo x > changed; git stash -q; git checkout -q side; git branch -q -u origin/main;"
        "git stash pop -q || true",
        "there is a merge conflict",
    ),
    "index.lock": ("echo u > u; touch .git/index.lock", "its index is locked (index.lock)"),
    "nested repository": ("git init -q nested; echo n > nested/file", "another repository or worktree"),
    "nested repository with a commit": (
        "git init -q n; cd n; echo n > f; git add f; git commit -qm n",
        "another repository or worktree",
    ),
    "nested worktree": ("git worktree add -q nested -b wt", "another repository or worktree"),
    "assume unchanged": ("echo m >> changed; git update-index --assume-unchanged changed", "told not to look"),
    "skip worktree": ("echo m >> changed; git update-index --skip-worktree changed", "told not to look"),
    "unborn": ("git checkout -q --orphan empty; git rm -rfq --cached .", "its branch has no commit yet"),
    "too much": ("head -c 2000000 /dev/zero > big", "stash_max is 1.0M"),
    "filter": (
        """git config filter.x.clean 'touch ../ran; cat'; git config filter.x.smudge 'touch ../ran; cat'
        echo '*.bin filter=x' > .git/info/attributes; echo b > b.bin""",
        "(the attribute filter)",
    ),
    "process filter": (
        """echo b > b.bin; git add b.bin; git config filter.x.process 'touch ../ran'
        git config filter.x.required true; echo '*.bin filter=x' > .git/info/attributes; echo c > b.bin""",
        "(the attribute filter)",
    ),
    "ident": ("echo '* ident' > .git/info/attributes; echo '$Id: mine $' > changed", "(the attribute ident)"),
    "encoding": (
        "echo '*.txt working-tree-encoding=UTF-16' > .git/info/attributes; printf 'a\\0' > a.txt",
        "(the attribute working-tree-encoding)",
    ),
    "line ends by attribute": ("echo '* eol=crlf' > .git/info/attributes; printf 'a\\n' > a", "(the attribute eol)"),
    "line ends by configuration": ("git config core.autocrlf true; printf 'a\\n' > a", "converts its line ends"),
    "attributes changed": ("echo '* -text' > .gitattributes; echo a > a", "its .gitattributes are changed"),
    "ignored in the remote's way": ("echo new > .git/info/exclude; echo mine > new", "an ignored file"),
    "ignored folder in the remote's way": ("echo new > .git/info/exclude; mkdir new; echo mine > new/x", "an ignored"),
    "ignored folder in a file's place": ("rm changed; mkdir changed; echo l > changed/a.log", "an ignored file"),
    "ignored file in a folder's place": ("rm -r dir; echo dir > .git/info/exclude; echo l > dir", "an ignored file"),
    "corrupt index": ("echo m >> changed; printf garbage > .git/index", "git status ended with 128"),
    "a staged object is gone": (
        DROP + "echo more > changed; git add changed; drop $(git rev-parse :changed); echo other > changed",
        "git fast-import ended with",
    ),
    "a staged object is another": (
        DROP + "echo more > changed; git add changed; o=$(git rev-parse :changed); f=.git/objects/${o:0:2}/${o:2};"
        "drop $o; p=$(echo else | git hash-object -w --stdin); cp .git/objects/${p:0:2}/${p:2} $f",
        "cannot be read back",
    ),
    "HEAD's commit is gone": (DROP + "echo m >> changed; git commit -qam m; drop $(git rev-parse HEAD)", "with 128"),
    "an unpushed object is gone": (
        DROP + "echo m >> changed; git commit -qam m; drop $(git rev-parse HEAD:changed)",
        "git rev-list ended with 128",
    ),
}
"""What cannot be proven to be kept, and why, in the words of the started marker."""
